/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * slots.c - memory that operations copy: as many buffers as may be in flight, used in turn, so that
 * every side of a row has the same footprint in the caches.  The numbers at both ends of a buffer
 * tell a copy that was made from one that was not, or only begun, or of another buffer.
 */
#include "bench.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLANK 0x5a5a000000000000ull

static size_t bytes(const struct slots *s)
{
	return (size_t)s->size * s->n;
}

void slots_init(struct slots *s, const struct options *o, int fd)
{
	*s = (struct slots){.size = o->size, .n = o->window};
	if (!s->n || s->size < 2 * sizeof(uint64_t) || s->size % sizeof(uint64_t))
		die("%u buffers of %u bytes", s->n, s->size);
	s->mem = mmap(NULL, bytes(s), PROT_READ | PROT_WRITE, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
	if (s->mem == MAP_FAILED)
		die("memory for %u buffers of %u bytes: %s", s->n, s->size, strerror(errno));
}

void slot_mark(const struct slots *s, uint64_t seq, uint64_t number)
{
	char *at = slot(s, seq);

	memcpy(at, &number, sizeof(number));
	memcpy(at + s->size - sizeof(number), &number, sizeof(number));
}

void slot_expect(const struct slots *s, uint64_t seq, uint64_t number, const char *what)
{
	uint64_t first, last;

	memcpy(&first, slot(s, seq), sizeof(first));
	memcpy(&last, slot(s, seq) + s->size - sizeof(last), sizeof(last));
	if (first != number || last != number)
		die("%s %llu: the buffer begins with %llx and ends with %llx, not with %llx", what,
		    (unsigned long long)seq, (unsigned long long)first, (unsigned long long)last,
		    (unsigned long long)number);
}

uint64_t slot_blank(uint64_t seq)
{
	return BLANK + seq;
}

void slots_blank(const struct slots *s)
{
	unsigned i;

	memset(s->mem, 0x5a, bytes(s)); /* every page touched before anything is timed */
	for (i = 0; i < s->n; i++)
		slot_mark(s, i, slot_blank(i));
}

void slots_free(struct slots *s)
{
	munmap(s->mem, bytes(s));
}
