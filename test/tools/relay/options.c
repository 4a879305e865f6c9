/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay.h"

static const char help[] =
	"Usage: pbox-relay --listen A:P[-Q] --to B:P[-Q] [options]\n"
	"\n"
	"Relays UDP datagrams over IPv4 and loses, repeats, reorders, delays, damages and cuts\n"
	"them, seeded, each direction by itself. test/tools/relay/README.md has the settings.\n"
	"\n"
	"  -l, --listen A:P[-Q]   where senders send to; up to 8 times, each with its --to\n"
	"  -t, --to B:P[-Q]       where that goes: as many ports\n"
	"  -n, --box-netns NS     send from this network namespace: a name, or a path with a /\n"
	"  -s, --set K=V[,K=V]... settings: seed=N, rx_... (from the senders), tx_... (back)\n"
	"  -c, --control PATH     take commands from a Unix stream socket as well\n"
	"  -f, --flows N          senders at a time, 1 to 1024 (64)\n"
	"  -m, --limit N          datagrams that a direction delays at most (4096)\n"
	"  -T, --time S           end after so many seconds (0: never)\n"
	"  -h, --help             print this page\n"
	"  -V, --version          print the version\n"
	"\n"
	"Commands, one a line: set K=V[,K=V]..., get, counters, quit. Answers are lines of JSON.\n"
	"Exit status: 0 good, 1 it could not start, 2 wrong usage.\n";

static int
usage(const char *what, const char *value)
{
	fprintf(stderr, "pbox-relay: %s%s%s: see pbox-relay --help\n", what,
		*value != '\0' ? " " : "", value);
	return EXIT_WRONG_USAGE;
}

/* A number and nothing else after it but @p end. */
static bool
number(const char **text, char end, unsigned long min, unsigned long max, unsigned *out)
{
	char *stop;
	unsigned long v = strtoul(*text, &stop, 10);

	if (**text < '0' || **text > '9' || (*stop != '\0' && *stop != end) || v < min || v > max)
		return false;
	*out = (unsigned)v;
	*text = stop;
	return true;
}

/* A:P or A:P-Q */
static bool
ports(const char *text, struct in_addr *address, uint16_t *port, uint16_t *n)
{
	const char *colon = strchr(text, ':');
	char host[INET_ADDRSTRLEN];
	unsigned first, last;

	if (colon == NULL || (size_t)(colon - text) >= sizeof(host))
		return false;
	memcpy(host, text, (size_t)(colon - text));
	host[colon - text] = '\0';
	text = colon + 1;
	if (inet_pton(AF_INET, host, address) != 1 || !number(&text, '-', 1, UINT16_MAX, &first))
		return false;
	last = first;
	if (*text == '-' && (text++, !number(&text, '\0', first, UINT16_MAX, &last)))
		return false;
	if (last - first >= RELAY_EARS)
		return false;
	*port = (uint16_t)first;
	*n = (uint16_t)(last - first + 1);
	return true;
}

static int
set_one(void *ctx, const char *key, const char *value, char *why, size_t n)
{
	struct options *o = ctx;
	struct pbox_fault_conf *const side[] = {&o->conf[PBOX_FAULT_RX], &o->conf[PBOX_FAULT_TX]};
	int sides = pbox_fault_conf_set_side(side, key, value, why, n);

	return sides < 0 ? sides : 0;
}

static int
settings(struct options *o, const char *value)
{
	char text[RELAY_LINE], why[256];

	if (strlen(value) >= sizeof(text))
		return usage("--set is too long", "");
	memcpy(text, value, strlen(value) + 1);
	if (pbox_fault_conf_each(text, set_one, o, why, sizeof(why)) != 0)
		return usage("--set", why);
	return -1;
}

/* Every --listen has a --to of as many ports. */
static int
check(struct options *o, unsigned n_listen, unsigned n_to, const uint16_t *n)
{
	unsigned ears = 0;

	if (n_listen == 0 || n_listen != n_to)
		return usage("--listen and --to, one for each", "");
	for (unsigned i = 0; i < n_listen; i++) {
		struct range *g = &o->range[i];

		if (g->n != n[i])
			return usage("--listen and --to: as many ports", "");
		g->first_ear = (uint16_t)ears;
		ears += g->n;
	}
	if (ears > RELAY_EARS)
		return usage("--listen: at most 256 ports", "");
	o->n_ranges = n_listen;
	return -1;
}

/* The next of --listen or of --to. */
static bool
next_range(struct options *o, const char *text, bool to, unsigned *at, uint16_t *n_to)
{
	struct range *g = &o->range[*at];

	if (*at == RELAY_RANGES ||
		!ports(text, to ? &g->to : &g->listen, to ? &g->to_port : &g->listen_port,
			to ? &n_to[*at] : &g->n))
		return false;
	(*at)++;
	return true;
}

int
options_parse(struct options *o, int argc, char **argv)
{
	static const struct option known[] = {{"listen", required_argument, NULL, 'l'},
		{"to", required_argument, NULL, 't'}, {"box-netns", required_argument, NULL, 'n'},
		{"set", required_argument, NULL, 's'}, {"control", required_argument, NULL, 'c'},
		{"flows", required_argument, NULL, 'f'}, {"limit", required_argument, NULL, 'm'},
		{"time", required_argument, NULL, 'T'}, {"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'}, {0}};
	unsigned n_listen = 0, n_to = 0;
	uint16_t n[RELAY_RANGES];
	const char *text;
	bool good = true;
	int c, status = -1;

	o->flows = 64;
	o->limit = 4096;
	for (int d = 0; d < PBOX_FAULT_DIRS; d++)
		pbox_fault_conf_defaults(&o->conf[d]);
	while (good && status < 0 &&
		(c = getopt_long(argc, argv, "l:t:n:s:c:f:m:T:hV", known, NULL)) != -1) {
		text = optarg;
		if (c == 'l' || c == 't')
			good = next_range(o, text, c == 't', c == 't' ? &n_to : &n_listen, n);
		else if (c == 'n')
			o->box_netns = text;
		else if (c == 's')
			status = settings(o, text);
		else if (c == 'c')
			o->control = text;
		else if (c == 'f')
			good = number(&text, '\0', 1, RELAY_FLOWS, &o->flows);
		else if (c == 'm')
			good = number(&text, '\0', 1, 65536, &o->limit);
		else if (c == 'T')
			good = number(&text, '\0', 0, 1000000, &o->seconds);
		else if (c == 'h')
			return fputs(help, stdout) >= 0 ? EXIT_GOOD : EXIT_FAILED;
		else if (c == 'V')
			return puts("pbox-relay " PBOX_VERSION) >= 0 ? EXIT_GOOD : EXIT_FAILED;
		else
			return EXIT_WRONG_USAGE;
	}
	if (status >= 0)
		return status;
	if (!good)
		return usage("not understood:", optarg);
	if (optind < argc)
		return usage("too much:", argv[optind]);
	return check(o, n_listen, n_to, n);
}
