/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * player.h - the random generator with its model: the board that all processes share, and actors.
 *
 * An actor is a socket.  Each actor owns SLOTS pieces of private memory.  A slot is granted, as a
 * region, to one writer at a time.  That writer alone writes, reads and counts in it, and logs
 * every write on the board before it sends it.  So the possible contents of a slot at any instant
 * follow from its first content and its log.  The owner checks them when a message arrives and when
 * the slot is returned, the writer when a read is done.
 *
 * Control goes over the board, never over messages: messages may be lost where sockets are
 * cancelled, closed or killed.
 */
#ifndef RDMAOPS_PLAYER_H
#define RDMAOPS_PLAYER_H

#include <stdatomic.h>

#include "rdma.h"

#define ACTORS_MAX 32
#define SLOTS 4
#define LOG_MAX 24
/* for atomics, at the beginning of a slot: word 0 counts, a digit per operation */
#define WORDS 8
#define DATA (WORDS * 8) /* where the rest begins */
#define SLOT_BYTES(i) ((size_t)PAGE << (2 * (i)))
#define SLOT_MAX SLOT_BYTES(SLOTS - 1)
#define POOL (2 * MIB) /* random bytes, the same for all: what is written comes from here */
#define PIECES_MAX 512
#define FLIGHTS 32
#define OLDS 4096
#define MAGIC 0x72647370u
#define GAP 3 /* guard bytes between the pieces of a read */

enum mode { CALM, CANCEL, KILL, DROP };
enum outcome { OPEN, DONE, UNSURE };
enum slot_state { IDLE, GRANTED, RELEASED };

struct entry { /* a write */
	_Atomic uint32_t outcome;
	uint32_t off, len;
	uint64_t key; /* what its pieces follow from */
};

struct slot {
	_Atomic uint32_t state;
	uint32_t gen, writer, flags; /* of the region */
	uint32_t life;		     /* of its owner, when it was granted */
	uint64_t cookie;
	size_t base; /* of its first content in the pool */
	_Atomic uint32_t n, digits;
	struct entry log[LOG_MAX];
	_Atomic uint32_t digit[LOG_MAX]; /* outcome */
	uint64_t word[WORDS];		 /* 1 and up, as the writer left them (CALM) */
	_Atomic uint64_t stale;		 /* a cookie that was freed and is beyond reach */
};

struct board {
	_Atomic uint64_t progress, ops[ACTORS_MAX], notes, letters, reads, writes, atomics, failures, unsure;
	_Atomic uint64_t sent[ACTORS_MAX][ACTORS_MAX], received[ACTORS_MAX][ACTORS_MAX]; /* CALM */
	_Atomic uint32_t life[ACTORS_MAX], opened[ACTORS_MAX], reached[ACTORS_MAX], quiet[ACTORS_MAX];
	/*
	 * actors that have something to say; the first one's word counts, the rest may be its doing
	 */
	_Atomic uint32_t failed;
	struct slot slot[ACTORS_MAX][SLOTS];
};

struct header { /* of a message */
	uint32_t magic, from, life, seq, zeros, never;
	uint32_t slot, gen, entry, final, hello; /* entry: its write, plus 1 */
	uint32_t body;
	uint64_t key;
};

/* What an actor asks its wire to send. */
struct request {
	unsigned to;
	struct header head;
	unsigned char *payload; /* with the header; NULL: nothing */
	size_t len;
	int cmsg; /* CMSG_*, 0: none */
	struct rdma_args args;
	struct vec vec[PIECES_MAX];
	struct atomic72 atomic;
	struct atomic56 vendor;
	bool as_vendor;
	struct get_mr map;
	uint64_t dest;
	uint64_t id; /* of an operation (--marks); 0: it has none */
};

struct arrival {
	unsigned notes;
	struct notify note[8];
	bool letter;
	unsigned from;
	size_t len;
	uint64_t cookie;
	unsigned char *body; /* until the next call */
};

enum what { WRITE, READ, COUNT, SWAP, BOGUS };

struct flight { /* an operation that will be notified of */
	uint64_t token;
	enum what what;
	unsigned to, slot, gen, life, entry, cancels;
	bool proven;	    /* an operation had been done by this life of the peer before */
	unsigned char *buf; /* a read's */
	uint64_t key;
	uint32_t off, len;
	uint64_t *old, want; /* an atomic's */
	double since;
};

struct grant { /* what the writer keeps of a slot */
	uint32_t gen, ops, target, flying, reading;
	bool untold, closing, begun; /* untold: the last operation is not notified of */
};

struct actor {
	unsigned id;
	int fd;
	uint64_t rng, tokens;
	uint32_t life, seq_out[ACTORS_MAX], zeros_out[ACTORS_MAX], seq_in[ACTORS_MAX], zeros_in[ACTORS_MAX],
		/* proven: its life, plus 1 */
		life_in[ACTORS_MAX], cancels[ACTORS_MAX], proven[ACTORS_MAX];
	/* holds: it begins nothing new */
	bool pending, holds;
	struct request req;
	struct flight flight[FLIGHTS], next; /* next: of req */
	unsigned flights;
	struct grant grant[ACTORS_MAX][SLOTS];
	struct {
		uint32_t gen;
		uint64_t cookie;
	} hello[ACTORS_MAX][SLOTS];
	unsigned char *mem[SLOTS];
	uint32_t final[SLOTS]; /* generation whose last message has come */
	uint64_t *olds;	       /* OLDS words for atomics, used in turn */
	struct marks *marks;   /* NULL without --marks */
};

struct wire {
	void (*open)(struct actor *a);
	void (*close)(struct actor *a);
	int (*get_mr)(struct actor *a, void *addr, size_t len, uint64_t flags, uint64_t *cookie, bool for_dest);
	int (*free_mr)(struct actor *a, uint64_t cookie, uint64_t flags);
	int (*send)(struct actor *a, struct request *r); /* 0 or -errno */
	bool (*recv)(struct actor *a, struct arrival *in);
	int (*cancel)(struct actor *a, unsigned to);
	void (*wait)(struct actor *const *a, unsigned n, int ms);
	unsigned (*place)(unsigned to); /* the first actor with that address */
	/* without waiting; 0 or -errno */
	int (*mark)(struct actor *a, unsigned to, uint64_t wait, uint64_t *mark);
};

extern struct board *board;
extern const unsigned char *pool;
extern const struct wire *wire, real_wire, fake_wire;
extern enum mode mode;
extern uint64_t seed, quota;
extern unsigned actors, cancels, stops;
extern double patience; /* seconds: of what takes that long it is said that it does */
extern bool marks;
extern const char *fake_fault;

extern const char *const fake_faults[];
bool fake_marks(unsigned fault); /* it shows with marks only */

/* ---- model ---- */

unsigned pieces(uint64_t key, size_t len, size_t *part);
void write_vecs(const struct entry *e, struct vec *v, unsigned *n);
/* Whether bytes [off, off+len) of a slot may look like this: NULL, or why not. */
const char *slot_wrong(const struct slot *s, uint32_t off, const unsigned char *got, size_t len, unsigned upto,
		       uint32_t done);
uint32_t slot_done(const struct slot *s);
const char *count_wrong(const struct slot *s, uint64_t word, unsigned digits, bool before);

/* ---- actors ---- */

struct actor *actor_new(unsigned id);
void actor_take_over(struct actor *a); /* after an earlier life of the same actor was killed */
uint64_t actor_random(struct actor *a);
bool actor_receive(struct actor *a);
bool actor_told(struct actor *a); /* takes what is there; true: there may be more notifications */
bool actor_step(struct actor *a);
bool actor_ready(struct actor *a); /* nothing of it is under way any more */
void actor_last_look(struct actor *a);
/* Actors with nothing to do, from the first time on; all zero. */
struct rest {
	uint64_t progress;
	double since;
	unsigned looks;
	bool told;
};
/*
 * Sleeps, longer each time until something happens anywhere: the board wakes nobody, and the watch
 * is to see that all stands still.  Says once, when that takes long, what is missing.
 */
__attribute__((format(printf, 4, 5))) void actors_rest(struct rest *r, struct actor *const *a, unsigned n,
						       const char *fmt, ...);
__attribute__((noreturn, format(printf, 2, 3))) void actor_fail(const struct actor *a, const char *fmt, ...);

void request_begin(struct actor *a, struct request *r, unsigned to);
void request_body(struct actor *a, struct request *r, size_t len);
int request_send(struct actor *a, struct request *r);
void request_sent(struct actor *a, const struct request *r);
bool request_busy(int rc);

void owner_grant(struct actor *a, unsigned i);
void owner_take_back(struct actor *a, unsigned i);

bool writer_send(struct actor *a); /* what is pending; false: it must wait */
void writer_plain(struct actor *a);
void writer_bogus(struct actor *a, unsigned to, uint64_t cookie, size_t behind);
bool writer_work(struct actor *a, bool finishing);

/* ---- marks ---- */

void marks_begin(struct actor *a); /* of a new socket */
void marks_sent(struct actor *a, const struct request *r, bool refused);
void marks_told(struct actor *a, uint64_t token, int status);
void marks_look(struct actor *a);
void marks_last_look(struct actor *a);

/* ---- when something is wrong ---- */

void trouble_connections(int fd); /* of all processes of the node */
void trouble_process(pid_t pid);

#endif
