/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * player.c [--seeds A-B | --seed S] [--ops N] [--procs N] [switches] [ADDRESS] - one socket, many
 * processes, by a seed.
 *
 * Each seed is one sequence.  Processes fork, exec, exit and are killed; they open, copy, pass and
 * close RDS sockets, bind and connect them, send, receive, poll, read names, and set and read
 * options.  One step happens at a time, except that a process may sleep in a call meanwhile.  After
 * each step the result is compared with the model's (model.h).  At the end all messages that should
 * be there are received, all processes are killed, and every port has to be free.  The same seed
 * makes the same sequence; --seed S prints it.
 *
 * --no-exec, --no-kill, --no-pass, --no-exit: leave these steps out.  --no-carrier-exec,
 * --no-carrier-kill, --no-carrier-exit: leave them out for a process that has opened a socket which
 * others have (most likely its owner).  --strict: also check what only the kernel promises: order
 * between senders, and ports that are free in the instant of the last close.  --break twice|lost:
 * the model itself is wrong, so that every run must fail.
 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../slow.h"
#include "player.h"

struct rules rules = {.ops = 60,
		      .procs = 8,
		      .exec = true,
		      .kill = true,
		      .pass = true,
		      .leave = true,
		      .carrier_exec = true,
		      .carrier_kill = true,
		      .carrier_leave = true,
		      .address = "127.0.0.1"};
extern struct model model;

static unsigned long first = 1, last = 20;

static const struct option options[] = {
	{"seed", required_argument, NULL, 's'},	     {"seeds", required_argument, NULL, 'S'},
	{"ops", required_argument, NULL, 'o'},	     {"procs", required_argument, NULL, 'p'},
	{"break", required_argument, NULL, 'b'},     {"strict", no_argument, NULL, 't'},
	{"no-exec", no_argument, NULL, 'e'},	     {"no-kill", no_argument, NULL, 'k'},
	{"no-pass", no_argument, NULL, 'a'},	     {"no-exit", no_argument, NULL, 'x'},
	{"no-carrier-exec", no_argument, NULL, 'E'}, {"no-carrier-kill", no_argument, NULL, 'K'},
	{"no-carrier-exit", no_argument, NULL, 'X'}, {NULL, 0, NULL, 0}};

static bool understood(int c)
{
	switch (c) {
	case 's':
		first = last = strtoul(optarg, NULL, 0);
		rules.verbose = true;
		return true;
	case 'S':
		return sscanf(optarg, "%lu-%lu", &first, &last) == 2;
	case 'o':
		rules.ops = strtoul(optarg, NULL, 0);
		return true;
	case 'p':
		rules.procs = strtoul(optarg, NULL, 0);
		return rules.procs >= 2 && rules.procs <= PLACES;
	case 'b':
		model.broken = optarg;
		patience = 2000; /* much of what is expected never comes */
		return true;
	case 't':
		rules.strict = model.in_order = true;
		return true;
	case 'e':
		rules.exec = false;
		return true;
	case 'k':
		rules.kill = false;
		return true;
	case 'a':
		rules.pass = false;
		return true;
	case 'x':
		rules.leave = false;
		return true;
	case 'E':
		rules.carrier_exec = false;
		return true;
	case 'K':
		rules.carrier_kill = false;
		return true;
	case 'X':
		rules.carrier_leave = false;
		return true;
	}
	return false;
}

int main(int argc, char **argv)
{
	unsigned long seed, bad = 0;
	int c;

	test_shows_stacks();
	program = argv[0];
	patience = TEST_COMES;
	if (argc == 4 && !strcmp(argv[1], "--worker"))
		worker(atoi(argv[2]), argv[3], true);
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		if (!understood(c))
			return 2;
	if (optind < argc)
		rules.address = argv[optind];
	signal(SIGCHLD, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (seed = first; seed <= last; seed++)
		bad += !play(seed);
	printf("%lu sequences, %lu steps, %lu ports free a moment late, %lu wrong\n", last - first + 1, steps_made,
	       late_ports, bad);
	return bad != 0;
}
