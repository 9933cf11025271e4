#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""switch.py [-v] [FAULT]: all interleavings of the hard part of the next design of sockets of several processes
(engine/share/NEXT.md): received messages, which lie in the owner's memory as long as nobody else reads, go into a pair
of AF_UNIX sockets that all read, and back, while they come, while processes begin to read and fork, and while any
process is killed, or the owner leaves, between any two steps.  A step is what other processes can see at once: a
packet, a lock, a descriptor.  What a process does in its own memory under its lock is part of a step.

Each message reaches one reader at most, and each reader gets them in order.  Lost are those alone that a killed process
had in its hand or its memory.  Nobody sleeps while a message waits for him.  With FAULT one rule is left out, and the
search has to find what goes wrong; without it the design and each of the faults are tried.  -v: shows the way there."""

import collections
import sys

PROCESSES, MESSAGES, ROOM, KILLS, LEAVES, PAIRS = 3, 3, 2, 1, 1, 3
FAULTS = {
    "drains-beside-readers": "the owner takes the queue back though another process may read",
    "drains-beside-thread": "the owner takes the queue back though another thread of it reads",
    "drains-in-part": "the owner gives away the pair again in the middle of that",
    "no-box": "the pair is in no box: who has not read yet does not find it",
    "locks-late": "who begins to read says so only when it has the pair",
    "pops-first": "a message leaves the owner's memory before it is in the pair",
    "leaves-early": "who leaves does not first take back all of the queue, when it has begun to",
    "forks-with-pair": "a child reads the pair that it has from its parent",
    "parks-late": "who leaves gives up the lease before what it has is in the box",
}

Pair = collections.namedtuple("Pair", "packets writer readers")  # the writer is None: closed
# at: of its thread.  pairs: whose reading ends it has, in order.  hand: a message.  last: the last one that it has read
Proc = collections.namedtuple("Proc", "alive locked at pairs hand last")
# What the owner has in its memory.  readers: how many of its threads read the pair.  asked: who wants it.  heir: it has
# to look into the box
Owner = collections.namedtuple("Owner", "who queue pumps drains readers asked popped helper heir leaving")
# box: pairs that lie there, and what a process that has left had in its memory
State = collections.namedtuple("State", "net procs pairs box parked owner lost read kills leaves")
FIRST = Owner(0, (), False, False, 0, (), None, None, False, False)


class Broken(Exception):
    pass


def put(seq, i, x):
    return seq[:i] + (x,) + seq[i + 1:]


class Search:
    def __init__(self, fault=None, forks=False):
        self.fault, self.child_comes = fault, forks or fault == "forks-with-pair"
        self.states = 0

    # ---- kernel: processes end ----

    def ends(self, s, i):
        """All that the process has is closed.  What nobody can reach any more is lost."""
        pairs = tuple(Pair(p.packets, None if p.writer == i else p.writer, p.readers - {i}) for p in s.pairs)
        procs = put(s.procs, i, s.procs[i]._replace(alive=False, locked=False, at="dead", pairs=(), hand=None))
        return s._replace(pairs=pairs, procs=procs)

    def killed(self, s, i):
        p, o, lost = s.procs[i], s.owner, set(s.lost)
        if p.hand is not None:
            lost |= set(p.hand)
        if o and o.who == i:
            lost |= set(o.queue)
            if o.popped is not None:
                lost.add(o.popped)
            s = s._replace(owner=None)
        return self.ends(s, i)._replace(lost=frozenset(lost), kills=s.kills + 1)

    # ---- readers ----

    def proc(self, s, i, **how):
        return s._replace(procs=put(s.procs, i, s.procs[i]._replace(**how)))

    def reads(self, s, i, m):
        """The call returns."""
        p = s.procs[i]
        if m in s.read:
            raise Broken(f"message {m} is read twice")
        if m <= p.last:
            raise Broken(f"process {i} reads {m} behind {p.last}")
        return self.proc(s, i, hand=None, last=m, at="calls")._replace(read=s.read | {m})

    def from_pair(self, s, i):
        """A recvmsg() on the first pair of its list: new states; none if it sleeps."""
        k = s.procs[i].pairs[0]
        pair = s.pairs[k]
        if pair.packets:
            pairs = put(s.pairs, k, pair._replace(packets=pair.packets[1:]))
            return [self.proc(s._replace(pairs=pairs), i, hand=pair.packets[:1], at="has")]
        if pair.writer is not None:
            return []
        pairs = put(s.pairs, k, pair._replace(readers=pair.readers - {i}))
        return [self.proc(s._replace(pairs=pairs), i, pairs=s.procs[i].pairs[1:], at="calls")]

    def borrower(self, s, i):
        p = s.procs[i]
        if p.at == "parks":
            return [self.ends(s._replace(parked=s.parked + p.hand), i)]
        if p.at == "has":
            return [self.reads(s, i, p.hand[0])]
        if not p.locked and (p.pairs or self.fault != "locks-late"):
            return [self.proc(s, i, locked=True)]
        if p.pairs:
            return self.from_pair(s, i)
        if s.owner is None:
            owner = FIRST._replace(who=i, heir=True)
            return [self.proc(s, i, at="calls", locked=False)._replace(owner=owner)]
        if p.at == "calls":
            o = s.owner
            return [self.proc(s, i, at="asks")._replace(owner=o._replace(asked=o.asked + (i,)))]
        if p.at == "asks" and i not in s.owner.asked and s.owner.helper != i:  # that owner has ended
            return [self.proc(s, i, at="calls")]
        return []

    # ---- the owner: its thread ----

    def others_read(self, s):
        return any(p.locked for j, p in enumerate(s.procs) if j != s.owner.who)

    def may_drain(self, s):
        """Once it has begun it goes on: who begins to read meanwhile gets another pair."""
        o = s.owner
        if o.drains and self.fault != "drains-in-part":
            return True
        return o.pumps and o.helper is None and (self.fault == "drains-beside-readers" or not self.others_read(s)) and \
            (self.fault == "drains-beside-thread" or not o.readers)

    def owner_call(self, s, i):
        o, p = s.owner, s.procs[i]
        if o.drains and self.fault != "drains-beside-thread":
            return []
        if o.pumps and p.pairs:
            return [self.proc(s, i, at="reads")._replace(owner=o._replace(readers=1))]
        if not o.pumps and o.queue:
            return [self.proc(s, i, hand=o.queue[:1], at="has")._replace(owner=o._replace(queue=o.queue[1:]))]
        return []

    def drains(self, s, i):
        """A packet, or the end: the last pair is closed, and the box emptied."""
        o, p = s.owner._replace(drains=True), s.procs[i]
        for k in p.pairs:
            pair = s.pairs[k]
            if pair.packets:
                n = sum(m < pair.packets[0] for m in o.queue)  # those that were taken back already
                queue = o.queue[:n] + pair.packets[:1] + o.queue[n:]
                pairs = put(s.pairs, k, pair._replace(packets=pair.packets[1:]))
                return s._replace(pairs=pairs, owner=o._replace(queue=queue))
        pairs = s.pairs
        for k in p.pairs:
            pairs = put(pairs, k, pairs[k]._replace(writer=None, readers=pairs[k].readers - {i}))
        return self.proc(s._replace(pairs=pairs, box=(), owner=o._replace(pumps=False, drains=False)), i, pairs=())

    def owner_thread(self, s, i):
        o, p = s.owner, s.procs[i]
        if o.heir or o.leaving:
            return []
        if p.at == "has":
            return [self.reads(s, i, p.hand[0])]
        if p.at == "reads" and not p.pairs:
            return [self.proc(s, i, at="calls")._replace(owner=o._replace(readers=0))]
        if p.at == "reads":
            return [t._replace(owner=t.owner._replace(readers=0)) for t in self.from_pair(s, i)]
        return self.owner_call(s, i)

    # ---- the owner: its helper ----

    def inherits(self, s, i):
        """What lies in the box, and what it has: in order."""
        o, p = s.owner, s.procs[i]
        mine = tuple(sorted(set(p.pairs) | set(s.box)))
        pairs = s.pairs
        for k in mine:
            pairs = put(pairs, k, pairs[k]._replace(readers=pairs[k].readers | {i}))
        o = o._replace(heir=False, queue=s.parked, pumps=bool(mine) or self.others_read(s))
        return self.proc(s, i, pairs=mine)._replace(pairs=pairs, parked=(), owner=o)

    def current(self, s):
        """The pair that this owner writes, or None."""
        mine = [k for k in s.procs[s.owner.who].pairs if s.pairs[k].writer == s.owner.who]
        return mine[0] if mine else None

    def makes_pair(self, s, i):
        o, k = s.owner, len(s.pairs)
        if k == PAIRS:  # far enough
            return s
        pairs = s.pairs + (Pair((), i, frozenset({i})),)
        box = s.box if self.fault == "no-box" else s.box + (k,)
        s = s._replace(pairs=pairs, box=box, owner=o._replace(pumps=True))
        return self.proc(s, i, pairs=s.procs[i].pairs + (k,))

    def pumps(self, s, i):
        o, k = s.owner, self.current(s)
        if o.popped is not None:
            m, queue = o.popped, o.queue
        elif o.pumps and o.queue:
            m, queue = o.queue[0], o.queue[1:]
        else:
            return []
        if k is None:
            return [self.makes_pair(s, i)]
        if len(s.pairs[k].packets) == ROOM:
            return []
        if self.fault == "pops-first" and o.popped is None:
            return [s._replace(owner=o._replace(queue=queue, popped=m))]
        pairs = put(s.pairs, k, s.pairs[k]._replace(packets=s.pairs[k].packets + (m,)))
        return [s._replace(pairs=pairs, owner=o._replace(queue=queue, popped=None))]

    def answers(self, s, i):
        """Two steps: the pair is there, and the asker gets it."""
        o = s.owner
        if o.helper is None:
            if not o.asked:
                return []
            o = o._replace(helper=o.asked[0], asked=o.asked[1:])
            s = s._replace(owner=o)
            return [s if self.current(s) is not None else self.makes_pair(s, i)]
        j, mine, pairs = o.helper, s.procs[i].pairs, s.pairs
        s = s._replace(owner=o._replace(helper=None))
        if not s.procs[j].alive:
            return [s]
        for k in mine:
            pairs = put(pairs, k, pairs[k]._replace(readers=pairs[k].readers | {j}))
        return [self.proc(s._replace(pairs=pairs), j, pairs=mine, at="calls")]

    def leaves(self, s, i):
        """What its memory has is parked; then it ends, and the lease is free."""
        o = s.owner
        if self.fault == "parks-late":
            return [self.proc(s._replace(owner=None, leaves=s.leaves + 1), i, at="parks", hand=o.queue)]
        if o.leaving:
            return [self.ends(s._replace(owner=None), i)]
        return [s._replace(parked=s.parked + o.queue, leaves=s.leaves + 1, owner=o._replace(queue=(), leaving=True))]

    def helper(self, s, i):
        o = s.owner
        if o.heir:
            return [self.inherits(s, i)]
        if o.leaving:
            return self.leaves(s, i)
        if self.may_drain(s):
            return [self.drains(s, i)]
        return self.pumps(s, i) + self.answers(s, i)

    # ---- all of it ----

    def steps(self, s):
        """What may be next without anybody's death."""
        out = []
        for i, p in enumerate(s.procs):
            if not p.alive:
                continue
            if s.owner and s.owner.who == i:
                out += self.owner_thread(s, i) + self.helper(s, i)
                if s.net and not s.owner.heir and not s.owner.leaving:
                    out.append(s._replace(net=s.net[1:], owner=s.owner._replace(queue=s.owner.queue + s.net[:1])))
            else:
                out += self.borrower(s, i)
        return out

    def forks(self, s):
        """The record lock is not inherited, descriptors are: the child closes them, and asks as if it never had."""
        out = []
        for j, c in enumerate(s.procs):
            for i, p in enumerate(s.procs if c.at == "unborn" else ()):
                if not p.alive or (s.owner and s.owner.who == i) or p.at not in ("calls", "asks"):
                    continue
                mine = p.pairs if self.fault == "forks-with-pair" else ()
                pairs = tuple(q._replace(readers=q.readers | {j}) if k in mine else q for k, q in enumerate(s.pairs))
                child = Proc(True, False, "calls", mine, None, p.last)
                out.append(s._replace(pairs=pairs, procs=put(s.procs, j, child)))
        return out

    def ends_of(self, s):
        out = self.forks(s)
        alive = [i for i, p in enumerate(s.procs) if p.alive]
        o = s.owner
        stay = [i for i in alive if s.procs[i].at != "parks" and not (o and o.who == i and o.leaving)]
        if s.kills < KILLS:
            out += [self.killed(s, i) for i in alive if len(stay) > 1 or i not in stay]
        may_leave = o and not o.leaving and not o.heir and (not o.drains or self.fault == "leaves-early")
        if may_leave and len(stay) > 1 and s.leaves < LEAVES and s.procs[o.who].at == "calls":
            out += self.leaves(s, o.who)
        return out

    def judge(self, s, next_ones):
        there = set(s.read) | set(s.lost) | set(s.net) | set(s.parked)
        there |= {m for p in s.procs for m in p.hand or ()}
        holders = set(s.box)
        for k, pair in enumerate(s.pairs):
            if pair.readers or k in holders:
                there |= set(pair.packets)
        if s.owner:
            there |= set(s.owner.queue) | ({s.owner.popped} if s.owner.popped is not None else set())
        if len(there) != MESSAGES:
            raise Broken(f"lost: {sorted(set(range(1, MESSAGES + 1)) - there)}")
        if not next_ones and len(s.read) + len(s.lost) != MESSAGES:
            raise Broken("all sleep, and messages wait")

    def run(self):
        procs = tuple(Proc(True, False, "calls", (), None, 0) for _ in range(PROCESSES))
        if self.child_comes:
            procs = procs[:-1] + (Proc(False, False, "unborn", (), None, 0),)
        first = State(tuple(range(1, MESSAGES + 1)), procs, (), (), (), FIRST, frozenset(), frozenset(), 0, 0)
        seen, todo = {first: None}, collections.deque([first])
        while todo:
            s = todo.popleft()
            try:
                next_ones = self.steps(s)
                self.judge(s, next_ones)
                next_ones = next_ones + self.ends_of(s)
            except Broken as e:
                self.states = len(seen)
                return f"{e}", self.way(seen, s)
            for t in next_ones:
                if t not in seen:
                    seen[t] = s
                    todo.append(t)
        self.states = len(seen)
        return None, []

    @staticmethod
    def way(seen, s):
        way = []
        while s is not None:
            way.append(s)
            s = seen[s]
        return way[::-1]


def main(args):
    verbose = "-v" in args
    tried = [(a, False) for a in args if a != "-v"] or [(None, False), (None, True), *((f, False) for f in FAULTS)]
    failed = 0
    for fault, forks in tried:
        search = Search(fault, forks)
        wrong, way = search.run()
        right = (wrong is None) == (fault is None)
        failed += not right
        found = f"{search.states} states, {wrong or 'nothing is wrong'}"
        name = fault or ("the design, with a fork" if forks else "the design")
        print("ok" if right else "WRONG", f"{name}: {found}", flush=True)
        if verbose and wrong:
            for s in way:
                print("  ", s)
    print(f"{len(tried) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
