/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * spec.c - parses RDS_PRELOAD_FAULT: "seed=7,disconnect=2000,delay=500:3000,...".  One error makes
 * all of it invalid.
 */
#include "tests/faults/transport/spec.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static bool spec_read_number(const char **s, uint64_t *v)
{
	char *end;

	if (**s < '0' || **s > '9')
		return false;
	*v = strtoull(*s, &end, 10);
	*s = end;
	return true;
}

bool fault_spec_parse(const char *s, struct fault_spec *spec)
{
	static const struct {
		const char *name;
		size_t off;
	} keys[] = {
#define KEY(k) {#k "=", offsetof(struct fault_spec, k)}
		KEY(seed),  KEY(disconnect), KEY(delay), KEY(drop), KEY(connect), KEY(accept), KEY(send),
		KEY(later), KEY(memory),     KEY(dup),	 KEY(show), KEY(post),	  KEY(kill),
#undef KEY
	};
	const size_t n = sizeof(keys) / sizeof(keys[0]);
	uint64_t *v;
	size_t i;

	memset(spec, 0, sizeof(*spec));
	for (;;) {
		for (i = 0; i < n && strncmp(s, keys[i].name, strlen(keys[i].name)) != 0; i++)
			;
		if (i == n)
			return false;
		s += strlen(keys[i].name);
		v = (uint64_t *)((char *)spec + keys[i].off);
		if (!spec_read_number(&s, v))
			return false;
		if (v == &spec->delay &&
		    (*s++ != ':' || !spec_read_number(&s, &spec->delay_us) || spec->delay_us > 10000000))
			return false;
		if (!*s)
			return true;
		if (*s++ != ',')
			return false;
	}
}
