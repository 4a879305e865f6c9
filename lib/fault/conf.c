/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pbox_fault.h"

#define SECONDS_60_US 60000000u

const struct pbox_fault_setting pbox_fault_settings[] = {
	{"loss", "P", "lose a packet"},
	{"burst", "P:LEN", "begin to lose LEN packets in a row"},
	{"gilbert", "BAD:GOOD[:P]", "turn bad, turn good again, lose while bad (1)"},
	{"dup", "P", "deliver twice"},
	{"reorder", "P:WINDOW[:US]",
		"hold back until 1 to WINDOW others have passed, or US (2000)"},
	{"delay_us", "US[:JITTER]", "deliver later by US plus 0 to JITTER"},
	{"corrupt", "P[:FROM]", "change one byte at FROM (0) or after it"},
	{"truncate", "P[:MIN]", "cut off anywhere after the first MIN (14) bytes"},
	{"mark", "P", "mark IPv4 packets that are ECN-capable: congestion experienced"},
	{"blackhole", "0|1", "lose everything"},
	{"target", "K:OFFSET:HEX[/MASK][+OFFSET:HEX[/MASK]...]",
		"lose the first K packets that have all these bytes; 0: off"},
	{NULL, NULL, NULL},
};

/* The numbers that settings are made of; all but target. */
static const struct field {
	const char *key;
	bool real; /* a probability, a double; else a uint32_t */
	bool optional;
	size_t at;
	uint32_t min, max, preset;
} fields[] = {
#define PROBABILITY(key, member)                                                    \
	{                                                                           \
		key, true, false, offsetof(struct pbox_fault_conf, member), 0, 1, 0 \
	}
#define NUMBER(key, member, min, max)                                                      \
	{                                                                                  \
		key, false, false, offsetof(struct pbox_fault_conf, member), min, max, min \
	}
#define OPTION(key, real, member, min, max, preset)                                         \
	{                                                                                   \
		key, real, true, offsetof(struct pbox_fault_conf, member), min, max, preset \
	}
	PROBABILITY("loss", loss),
	PROBABILITY("burst", burst),
	NUMBER("burst", burst_len, 1, 1000000),
	PROBABILITY("gilbert", gilbert_bad),
	PROBABILITY("gilbert", gilbert_good),
	OPTION("gilbert", true, gilbert_loss, 0, 1, 1),
	PROBABILITY("dup", dup),
	PROBABILITY("reorder", reorder),
	NUMBER("reorder", reorder_window, 1, PBOX_FAULT_WINDOW_MAX),
	OPTION("reorder", false, reorder_us, 0, SECONDS_60_US, 2000),
	NUMBER("delay_us", delay_us, 0, SECONDS_60_US),
	OPTION("delay_us", false, jitter_us, 0, SECONDS_60_US, 0),
	PROBABILITY("corrupt", corrupt),
	OPTION("corrupt", false, corrupt_from, 0, UINT16_MAX, 0),
	PROBABILITY("truncate", truncate),
	OPTION("truncate", false, truncate_min, 0, UINT16_MAX, 14),
	PROBABILITY("mark", mark),
	NUMBER("blackhole", blackhole, 0, 1),
};
#define N_FIELDS (sizeof(fields) / sizeof(fields[0]))

static void
store(struct pbox_fault_conf *conf, const struct field *f, double v)
{
	uint32_t u = (uint32_t)v;

	if (f->real)
		memcpy((char *)conf + f->at, &v, sizeof(v));
	else
		memcpy((char *)conf + f->at, &u, sizeof(u));
}

static double
fault_conf_load(const struct pbox_fault_conf *conf, const struct field *f)
{
	double d;
	uint32_t u;

	if (f->real) {
		memcpy(&d, (const char *)conf + f->at, sizeof(d));
		return d;
	}
	memcpy(&u, (const char *)conf + f->at, sizeof(u));
	return u;
}

void
pbox_fault_conf_defaults(struct pbox_fault_conf *conf)
{
	memset(conf, 0, sizeof(*conf));
	for (unsigned i = 0; i < N_FIELDS; i++)
		store(conf, &fields[i], fields[i].preset);
}

/* One number; @p text moves after it. Plain decimal: what strtod takes besides is refused. */
static int
fault_parse_number(const char **text, const struct field *f, double *v, char *why, size_t n)
{
	char *end;

	errno = 0;
	*v = isdigit((unsigned char)**text) || **text == '.' ? strtod(*text, &end) : NAN;
	if (isnan(*v) || errno != 0 || (*end != '\0' && *end != ':')) {
		snprintf(why, n, "not a number: '%s'", *text);
		return -EINVAL;
	}
	if (*v < f->min || *v > f->max || (!f->real && *v != floor(*v))) {
		snprintf(why, n, "'%s' is not %s from %u to %u", *text,
			f->real ? "a probability" : "a whole number", f->min, f->max);
		return -EINVAL;
	}
	*text = end;
	return 0;
}

static int
parse_hex(const char **text, uint8_t *bytes, uint32_t *len)
{
	static const char digits[] = "0123456789abcdef";
	const char *p = *text;

	for (*len = 0; isxdigit((unsigned char)p[0]) && isxdigit((unsigned char)p[1]); p += 2) {
		if (*len == PBOX_FAULT_TERM_BYTES)
			return -EINVAL;
		bytes[(*len)++] = (uint8_t)((strchr(digits, tolower(p[0])) - digits) << 4 |
					    (strchr(digits, tolower(p[1])) - digits));
	}
	*text = p;
	return *len > 0 ? 0 : -EINVAL;
}

/* OFFSET:HEX[/MASK] */
static int
parse_term(const char **text, struct pbox_fault_term *term)
{
	uint32_t mask_len;
	char *end;
	unsigned long offset;

	memset(term, 0, sizeof(*term));
	if (!isdigit((unsigned char)**text))
		return -EINVAL;
	offset = strtoul(*text, &end, 10);
	if (offset > UINT16_MAX || *end != ':')
		return -EINVAL;
	term->offset = (uint32_t)offset;
	*text = end + 1;
	if (parse_hex(text, term->value, &term->len) != 0)
		return -EINVAL;
	memset(term->mask, 0xFF, term->len);
	if (**text == '/') {
		(*text)++;
		if (parse_hex(text, term->mask, &mask_len) != 0 || mask_len != term->len)
			return -EINVAL;
	}
	for (uint32_t i = 0; i < term->len; i++)
		term->value[i] &= term->mask[i];
	return 0;
}

static int
parse_target(struct pbox_fault_conf *conf, const char *text, char *why, size_t n)
{
	struct pbox_fault_conf got = *conf;
	char *end;
	unsigned long first;

	if (!isdigit((unsigned char)*text))
		goto bad;
	first = strtoul(text, &end, 10);
	got.target_first = first < UINT32_MAX ? (uint32_t)first : UINT32_MAX;
	got.target_terms = 0;
	text = end;
	if (*text != '\0' || first != 0) {
		do {
			if (got.target_terms == PBOX_FAULT_TERMS || *text == '\0')
				goto bad;
			text++; /* ':' before the first, '+' before others */
			if (parse_term(&text, &got.target[got.target_terms++]) != 0)
				goto bad;
		} while (*text == '+');
		if (*text != '\0' || *end != ':')
			goto bad;
	}
	*conf = got;
	return 0;
bad:
	snprintf(why, n,
		"target is K:OFFSET:HEX[/MASK], up to %d of OFFSET:HEX[/MASK] joined by '+', up to %d bytes each",
		PBOX_FAULT_TERMS, PBOX_FAULT_TERM_BYTES);
	return -EINVAL;
}

int
pbox_fault_conf_set(
	struct pbox_fault_conf *conf, const char *key, const char *value, char *why, size_t n)
{
	struct pbox_fault_conf got = *conf;
	bool known = false;
	double v;

	if (strcmp(key, "target") == 0)
		return parse_target(conf, value, why, n);
	for (unsigned i = 0; i < N_FIELDS; i++) {
		if (strcmp(fields[i].key, key) != 0)
			continue;
		if (known && *value == ':') {
			value++;
		} else if (known && fields[i].optional) {
			store(&got, &fields[i], fields[i].preset);
			continue;
		} else if (known && fault_conf_load(&got, &fields[i - 1]) == 0) {
			continue; /* "0" alone switches off */
		} else if (known) {
			snprintf(why, n, "%s takes more numbers, joined by ':'", key);
			return -EINVAL;
		}
		known = true;
		if (fault_parse_number(&value, &fields[i], &v, why, n) != 0)
			return -EINVAL;
		store(&got, &fields[i], v);
	}
	if (!known) {
		snprintf(why, n, "no setting '%s'", key);
		return -EINVAL;
	}
	if (*value != '\0') {
		snprintf(why, n, "too much for %s: '%s'", key, value);
		return -EINVAL;
	}
	*conf = got;
	return 0;
}

int
pbox_fault_conf_set_side(struct pbox_fault_conf *const side[PBOX_FAULT_DIRS], const char *key,
	const char *value, char *why, size_t n)
{
	enum pbox_fault_dir dir = strncmp(key, "tx_", 3) == 0 ? PBOX_FAULT_TX : PBOX_FAULT_RX;
	uint64_t seed;
	char *end;

	if (strcmp(key, "seed") == 0) {
		seed = strtoull(value, &end, 0);
		if (*value < '0' || *value > '9' || *end != '\0') {
			snprintf(why, n, "seed is a number");
			return -EINVAL;
		}
		for (int d = 0; d < PBOX_FAULT_DIRS; d++) {
			side[d]->seed = seed;
			side[d]->reseed++;
		}
		return 1 << PBOX_FAULT_RX | 1 << PBOX_FAULT_TX;
	}
	if (strncmp(key, "rx_", 3) != 0 && strncmp(key, "tx_", 3) != 0) {
		snprintf(why, n, "no setting '%s': seed, rx_... or tx_...", key);
		return -EINVAL;
	}
	if (pbox_fault_conf_set(side[dir], key + 3, value, why, n) != 0)
		return -EINVAL;
	return 1 << dir;
}

int
pbox_fault_conf_each(char *text,
	int (*set)(void *ctx, const char *key, const char *value, char *why, size_t n), void *ctx,
	char *why, size_t n)
{
	char *save = NULL, *value;
	int ret = -EINVAL;

	snprintf(why, n, "nothing to set: PORT,KEY=VALUE");
	for (char *key = strtok_r(text, ",", &save); key != NULL;
		key = strtok_r(NULL, ",", &save)) {
		value = strchr(key, '=');
		if (value == NULL) {
			snprintf(why, n, "'%s' is not KEY=VALUE", key);
			return -EINVAL;
		}
		*value++ = '\0';
		ret = set(ctx, key, value, why, n);
		if (ret != 0)
			break;
	}
	return ret;
}

static void
append(char *text, size_t n, const char *more)
{
	size_t len = strlen(text);

	snprintf(text + len, n - len, "%s", more);
}

static void
get_target(const struct pbox_fault_conf *conf, char *text, size_t n)
{
	char part[32];

	snprintf(text, n, "%" PRIu32, conf->target_first);
	for (uint32_t i = 0; i < conf->target_terms; i++) {
		const struct pbox_fault_term *t = &conf->target[i];
		bool masked = false;

		snprintf(part, sizeof(part), "%c%" PRIu32 ":", i == 0 ? ':' : '+', t->offset);
		append(text, n, part);
		for (uint32_t b = 0; b < t->len; b++) {
			snprintf(part, sizeof(part), "%02x", t->value[b]);
			append(text, n, part);
			masked |= t->mask[b] != 0xFF;
		}
		for (uint32_t b = 0; masked && b < t->len; b++) {
			snprintf(part, sizeof(part), "%s%02x", b == 0 ? "/" : "", t->mask[b]);
			append(text, n, part);
		}
	}
}

void
pbox_fault_conf_get(const struct pbox_fault_conf *conf, unsigned i, char *text, size_t n)
{
	const char *key = pbox_fault_settings[i].key;
	char part[32];

	if (strcmp(key, "target") == 0) {
		get_target(conf, text, n);
		return;
	}
	text[0] = '\0';
	for (unsigned f = 0; f < N_FIELDS; f++) {
		if (strcmp(fields[f].key, key) != 0)
			continue;
		snprintf(part, sizeof(part), "%s%.10g", text[0] != '\0' ? ":" : "",
			fault_conf_load(conf, &fields[f]));
		append(text, n, part);
	}
}

bool
pbox_fault_conf_active(const struct pbox_fault_conf *c)
{
	return c->loss > 0 || c->burst > 0 || c->gilbert_bad > 0 || c->dup > 0 || c->reorder > 0 ||
	       c->corrupt > 0 || c->truncate > 0 || c->mark > 0 || c->delay_us > 0 ||
	       c->jitter_us > 0 || c->blackhole != 0 || c->target_first > 0;
}
