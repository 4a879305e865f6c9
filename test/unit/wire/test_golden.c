/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The C codec against test/golden/frames.json, which the Python codec wrote. */

#include <inttypes.h>

#include <jansson.h>

#include "payload.h"

const char unit_suite[] = "wire: golden frames";

static json_t *golden;
static const char *frame_name; /* for the messages of failed assertions */

static void
same(unsigned long long got, unsigned long long want, const char *what)
{
	char text[160];

	snprintf(text, sizeof(text), "%s: %s is %llu, not %llu", frame_name, what, got, want);
	CU_assertImplementation(got == want, __LINE__, text, __FILE__, "", CU_FALSE);
}

static unsigned long long
number(json_t *object, const char *key)
{
	json_t *v = json_object_get(object, key);

	same(json_is_integer(v), 1, key);
	return (unsigned long long)json_integer_value(v);
}

static void
check_number(json_t *object, const char *key, unsigned long long got)
{
	same(got, number(object, key), key);
}

static void
check_text(json_t *object, const char *key, const char *got)
{
	const char *want = json_string_value(json_object_get(object, key));

	same(want != NULL && strcmp(got, want) == 0, 1, key);
}

static size_t
from_hex(const char *hex, uint8_t *out, size_t cap)
{
	size_t n = strlen(hex) / 2;

	CU_ASSERT_FATAL(n <= cap);
	for (size_t i = 0; i < n; i++) {
		unsigned byte = 0;

		CU_ASSERT_FATAL(sscanf(hex + 2 * i, "%2x", &byte) == 1);
		out[i] = (uint8_t)byte;
	}
	return n;
}

static void
check_bytes(json_t *p, const char *key, const uint8_t *got, size_t len)
{
	uint8_t want[PBOX_PROOF_LEN];

	same(from_hex(json_string_value(json_object_get(p, key)), want, sizeof(want)), len, key);
	same(memcmp(got, want, len), 0, key);
}

/* ---- one checker for each control payload: decode, compare the fields, encode again ------- */

/*
 * p: the fields as JSON, NULL for a payload that is malformed. Returns -1 if it does not decode,
 * else the length of what was encoded to out.
 */
typedef int (*checker)(const uint8_t *buf, size_t len, json_t *p, uint8_t *out, size_t cap);

#define N(key)         check_number(p, #key, m.key)
#define N4(a, b, c, d) N(a), N(b), N(c), N(d)

static int
check_hello(const uint8_t *buf, size_t len, json_t *p, uint8_t *out, size_t cap)
{
	struct pbox_hello m;

	if (pbox_hello_decode(buf, len, &m) != 0)
		return -1;
	N(min_version);
	N(max_version);
	return (int)pbox_hello_encode(out, cap, &m);
}

static int
check_retry(const uint8_t *buf, size_t len, json_t *p, uint8_t *out, size_t cap)
{
	struct pbox_retry m;

	if (pbox_retry_decode(buf, len, &m) != 0)
		return -1;
	N(cookie);
	N(incarnation);
	return (int)pbox_retry_encode(out, cap, &m);
}

static int
check_join(const uint8_t *buf, size_t len, json_t *p, uint8_t *out, size_t cap)
{
	struct pbox_join m;

	if (pbox_join_decode(buf, len, &m) != 0)
		return -1;
	N(cookie);
	N(nonce);
	N(worker);
	N(workers);
	N(mtu);
	N(window);
	N(policy);
	N(auth);
	N(revision);
	N(can);
	N(needs);
	N(slots);
	N(least);
	N(lease_ms);
	check_text(p, "job", m.job);
	check_text(p, "host", m.host);
	check_bytes(p, "proof", m.proof, sizeof(m.proof));
	check_bytes(p, "run", m.run, sizeof(m.run));
	N(number);
	return (int)pbox_join_encode(out, cap, &m);
}

static int
check_welcome(const uint8_t *buf, size_t len, json_t *p, uint8_t *out, size_t cap)
{
	struct pbox_welcome m;
	json_t *ends = json_object_get(p, "endpoints");

	if (pbox_welcome_decode(buf, len, &m) != 0)
		return -1;
	N(token);
	N(nonce);
	N(job);
	N(worker);
	N(workers);
	N(incarnation);
	N(lease_ms);
	N(mtu);
	N(window);
	N(flags);
	check_bytes(p, "proof", m.proof, sizeof(m.proof));
	N(number);
	same(m.endpoints, json_array_size(ends), "endpoints");
	for (unsigned i = 0; i < m.endpoints; i++) {
		json_t *end = json_array_get(ends, i);
		const uint8_t *ip = m.endpoint[i].ipv4;
		char text[16];

		snprintf(text, sizeof(text), "%u.%u.%u.%u", ip[0], ip[1], ip[2], ip[3]);
		same(strcmp(text, json_string_value(json_array_get(end, 0))), 0, "ipv4");
		same(m.endpoint[i].udp, json_integer_value(json_array_get(end, 1)), "udp");
	}
	return (int)pbox_welcome_encode(out, cap, &m);
}

static int
check_declare(const uint8_t *buf, size_t len, json_t *p, uint8_t *out, size_t cap)
{
	struct pbox_declare m;
	struct pbox_tensor_entry e;
	struct pbox_cursor cur, to;
	json_t *entries = json_object_get(p, "entries");

	if (pbox_declare_decode(buf, len, &m, &cur) != 0)
		return -1;
	N(table);
	N(tensors);
	N(first);
	N(mode);
	N(op);
	N(optimiser);
	N(push_format);
	N(pull_format);
	N(discipline);
	N(flags);
	same(m.count, json_array_size(entries), "count");
	CU_ASSERT_EQUAL(pbox_declare_begin(out, cap, &m, &to), 0);
	for (unsigned i = 0; i < m.count; i++) {
		json_t *t = json_array_get(entries, i);

		CU_ASSERT_EQUAL(pbox_declare_next(&cur, &e), 0);
		check_number(t, "elements", e.elements);
		check_number(t, "group", e.group);
		check_text(t, "name", e.name);
		CU_ASSERT_EQUAL(pbox_declare_add(out, &to, &e), 0);
	}
	return (int)pbox_page_len(out, &to);
}

static int
check_declared(const uint8_t *buf, size_t len, json_t *p, uint8_t *out, size_t cap)
{
	struct pbox_declared m;

	if (pbox_declared_decode(buf, len, &m) != 0)
		return -1;
	N(table);
	N(first);
	N(count);
	return (int)pbox_declared_encode(out, cap, &m);
}

static int
check_map(const uint8_t *buf, size_t len, json_t *p, uint8_t *out, size_t cap)
{
	struct pbox_map m;

	if (pbox_map_decode(buf, len, &m) != 0)
		return -1;
	N(table);
	N(first);
	return (int)pbox_map_encode(out, cap, &m);
}

static int
check_not_ready(const uint8_t *buf, size_t len, json_t *p, uint8_t *out, size_t cap)
{
	struct pbox_not_ready m;

	if (pbox_not_ready_decode(buf, len, &m) != 0)
		return -1;
	N(expected);
	N(joined);
	N(declared);
	N(first_missing);
	N(silent_ms);
	check_text(p, "text", m.text);
	return (int)pbox_not_ready_encode(out, cap, &m);
}

static void
check_chunk(json_t *c, const struct pbox_chunk_entry *e)
{
	json_t *segments = json_object_get(c, "segments");

	check_number(c, "chunk_id", e->chunk_id);
	check_number(c, "endpoint", e->endpoint);
	check_number(c, "elements", e->elements);
	check_number(c, "version", e->version);
	same(e->segments, json_array_size(segments), "segments");
	for (unsigned j = 0; j < e->segments; j++) {
		json_t *s = json_array_get(segments, j);

		same(e->segment[j].offset, json_integer_value(json_array_get(s, 0)), "offset");
		same(e->segment[j].tensor, json_integer_value(json_array_get(s, 1)), "tensor");
		same(e->segment[j].elements, json_integer_value(json_array_get(s, 2)), "elements");
	}
}

static int
check_mapped(const uint8_t *buf, size_t len, json_t *p, uint8_t *out, size_t cap)
{
	struct pbox_mapped m;
	struct pbox_chunk_entry e;
	struct pbox_cursor cur, to;
	json_t *entries = json_object_get(p, "entries");

	if (pbox_mapped_decode(buf, len, &m, &cur) != 0)
		return -1;
	N(table);
	N(chunks);
	N(first);
	N(frag_elements);
	N(first_chunk_id);
	same(m.count, json_array_size(entries), "count");
	CU_ASSERT_EQUAL(pbox_mapped_begin(out, cap, &m, &to), 0);
	for (unsigned i = 0; i < m.count; i++) {
		CU_ASSERT_EQUAL(pbox_mapped_next(&cur, &e), 0);
		check_chunk(json_array_get(entries, i), &e);
		CU_ASSERT_EQUAL(pbox_mapped_add(out, &to, &e), 0);
	}
	return (int)pbox_page_len(out, &to);
}

static int
check_set(const uint8_t *buf, size_t len, json_t *p, uint8_t *out, size_t cap)
{
	struct pbox_set m;
	json_t *params = json_object_get(p, "params");

	if (pbox_set_decode(buf, len, &m) != 0)
		return -1;
	N(table);
	N(group);
	N(from_round);
	same(m.count, json_array_size(params), "count");
	for (unsigned i = 0; i < m.count; i++) {
		json_t *pair = json_array_get(params, i);

		same(m.param[i].id, json_integer_value(json_array_get(pair, 0)), "id");
		same(m.param[i].value == json_number_value(json_array_get(pair, 1)), 1, "value");
	}
	return (int)pbox_set_encode(out, cap, &m);
}

static int
check_status(const uint8_t *buf, size_t len, json_t *p, uint8_t *out, size_t cap)
{
	struct pbox_status m;

	if (pbox_status_decode(buf, len, &m) != 0)
		return -1;
	N(first);
	N(flags);
	N(chunk);
	N(round);
	N(frag);
	return (int)pbox_status_encode(out, cap, &m);
}

static int
check_status_ok(const uint8_t *buf, size_t len, json_t *p, uint8_t *out, size_t cap)
{
	struct pbox_status_ok m;
	struct pbox_member_entry e;
	struct pbox_cursor cur, to;
	json_t *members = json_object_get(p, "members");

	if (pbox_status_ok_decode(buf, len, &m, &cur) != 0)
		return -1;
	N(workers);
	N(joined);
	N(first);
	N(tables);
	N(max_round);
	N(flags);
	check_text(p, "text", m.text);
	same(m.count, json_array_size(members), "count");
	CU_ASSERT_EQUAL(pbox_status_ok_begin(out, cap, &m, &to), 0);
	for (unsigned i = 0; i < m.count; i++) {
		json_t *j = json_array_get(members, i);

		CU_ASSERT_EQUAL(pbox_status_ok_next(&cur, &e), 0);
		check_number(j, "worker", e.worker);
		check_number(j, "state", e.state);
		check_number(j, "reason", e.reason);
		check_number(j, "silent_ms", e.silent_ms);
		check_number(j, "declared", e.declared);
		check_text(j, "host", e.host);
		CU_ASSERT_EQUAL(pbox_status_ok_add(out, &to, &e), 0);
	}
	return (int)pbox_page_len(out, &to);
}

static int
check_error(const uint8_t *buf, size_t len, json_t *p, uint8_t *out, size_t cap)
{
	struct pbox_error_msg m;

	if (pbox_error_decode(buf, len, &m) != 0)
		return -1;
	N(code);
	N(type);
	N(detail);
	check_text(p, "text", m.text);
	return (int)pbox_error_encode(out, cap, &m);
}

static void
check_real(json_t *p, const char *key, double got)
{
	same(json_number_value(json_object_get(p, key)) == got, 1, key);
}

static void
check_ranges(json_t *p, const char *key, const struct pbox_slot_range *r, unsigned n)
{
	json_t *list = json_object_get(p, key);

	same(n, json_array_size(list), key);
	for (unsigned i = 0; i < n; i++) {
		json_t *pair = json_array_get(list, i);

		same(r[i].first, (unsigned)json_integer_value(json_array_get(pair, 0)), key);
		same(r[i].end, (unsigned)json_integer_value(json_array_get(pair, 1)), key);
	}
}

static int
check_work(const uint8_t *buf, size_t len, json_t *p, uint8_t *out, size_t cap)
{
	struct pbox_work_ask m;

	if (pbox_work_ask_decode(buf, len, &m) != 0)
		return -1;
	N4(table, round, edition, slots);
	N4(payloads, fits, trained, batch);
	check_real(p, "compute", m.compute);
	check_real(p, "fixed", m.fixed);
	check_real(p, "up", m.up);
	check_real(p, "down", m.down);
	N(seed);
	N(samples);
	N(group);
	check_ranges(p, "ranges", m.range, m.ranges);
	return (int)pbox_work_ask_encode(out, cap, &m);
}

static int
check_work_ok(const uint8_t *buf, size_t len, json_t *p, uint8_t *out, size_t cap)
{
	struct pbox_work_ok m;

	if (pbox_work_ok_decode(buf, len, &m) != 0)
		return -1;
	N4(table, edition, plan, next_plan);
	N4(next_from, again_ms, members, leads);
	N(now);
	N(trained);
	for (unsigned i = 0; i < PBOX_WORK_HYPERS; i++)
		CU_ASSERT_EQUAL(m.hyper[i],
			json_number_value(json_array_get(json_object_get(p, "hyper"), i)));
	N(decided);
	check_real(p, "decision", m.decision);
	check_ranges(p, "ranges", m.range, m.ranges);
	check_ranges(p, "next_ranges", m.next_range, m.next_ranges);
	return (int)pbox_work_ok_encode(out, cap, &m);
}

static int
check_task(const uint8_t *buf, size_t len, json_t *p, uint8_t *out, size_t cap)
{
	struct pbox_task m;

	if (pbox_task_decode(buf, len, &m) != 0)
		return -1;
	N4(table, round, wish, since_us);
	N(first);
	N(end);
	check_ranges(p, "ranges", m.range, m.ranges);
	return (int)pbox_task_encode(out, cap, &m);
}

static int
check_task_ok(const uint8_t *buf, size_t len, json_t *p, uint8_t *out, size_t cap)
{
	struct pbox_task_ok m;

	if (pbox_task_ok_decode(buf, len, &m) != 0)
		return -1;
	N(table);
	N(round);
	N(again_ms);
	check_ranges(p, "ranges", m.range, m.ranges);
	return (int)pbox_task_ok_encode(out, cap, &m);
}

static int
check_boxes_ok(const uint8_t *buf, size_t len, json_t *p, uint8_t *out, size_t cap)
{
	struct pbox_boxes_ok m;
	json_t *list = json_object_get(p, "boxes");

	if (pbox_boxes_ok_decode(buf, len, &m) != 0)
		return -1;
	N(box);
	N(decides);
	N(cores);
	N(chunk_elements);
	N(mtu);
	N(out);
	check_text(p, "release", m.release);
	UNIT_EQ_U64(json_array_size(list), m.boxes);
	for (unsigned i = 0; i < m.boxes; i++) {
		char ip[32];

		snprintf(ip, sizeof(ip), "%u.%u.%u.%u", m.at[i].ipv4[0], m.at[i].ipv4[1],
			m.at[i].ipv4[2], m.at[i].ipv4[3]);
		CU_ASSERT_STRING_EQUAL(
			json_string_value(json_array_get(json_array_get(list, i), 0)), ip);
		UNIT_EQ_U64(json_integer_value(json_array_get(json_array_get(list, i), 1)),
			m.at[i].udp);
	}
	return (int)pbox_boxes_ok_encode(out, cap, &m);
}

static int
check_stats(const uint8_t *buf, size_t len, json_t *p, uint8_t *out, size_t cap)
{
	struct pbox_stats_msg m;
	json_t *list = json_object_get(p, "boxes");

	if (pbox_stats_decode(buf, len, &m) != 0)
		return -1;
	N(rounds);
	check_real(p, "seconds", m.seconds);
	check_real(p, "squares", m.squares);
	UNIT_EQ_U64(json_array_size(list), m.boxes);
	for (unsigned i = 0; i < m.boxes; i++) {
		json_t *box = json_array_get(list, i);
		const double got[] = {
			m.box[i].rounds, m.box[i].seconds, m.box[i].squares, m.box[i].exposed};

		for (unsigned k = 0; k < 4; k++)
			CU_ASSERT(json_number_value(json_array_get(box, k)) == got[k]);
	}
	return (int)pbox_stats_encode(out, cap, &m);
}

static int
check_homes(const uint8_t *buf, size_t len, json_t *p, uint8_t *out, size_t cap)
{
	struct pbox_homes m;
	json_t *list = json_object_get(p, "homes");

	if (pbox_homes_decode(buf, len, &m) != 0)
		return -1;
	N(table);
	N(chunks);
	N(first);
	N(epoch);
	N(flags);
	N(out);
	UNIT_EQ_U64(json_array_size(list), m.count);
	for (unsigned i = 0; i < m.count; i++) {
		json_t *o = json_array_get(list, i);

		UNIT_EQ_U64(json_integer_value(json_array_get(o, 0)), m.home[i].box);
		UNIT_EQ_U64(json_integer_value(json_array_get(o, 1)), m.home[i].endpoint);
		UNIT_EQ_U64(json_integer_value(json_array_get(o, 2)), m.home[i].epoch);
		UNIT_EQ_U64(json_integer_value(json_array_get(o, 3)), m.home[i].version);
	}
	return (int)pbox_homes_encode(out, cap, &m);
}

static const checker checkers[PBOX_FIRST_DATA_TYPE] = {
	[PBOX_STATS] = check_stats,
	[PBOX_HOMES] = check_homes,
	[PBOX_HOMES_OK] = check_homes,
	[PBOX_WORK] = check_work,
	[PBOX_WORK_OK] = check_work_ok,
	[PBOX_TASK] = check_task,
	[PBOX_TASK_OK] = check_task_ok,
	[PBOX_BOXES_OK] = check_boxes_ok,
	[PBOX_HELLO] = check_hello,
	[PBOX_RETRY] = check_retry,
	[PBOX_JOIN] = check_join,
	[PBOX_WELCOME] = check_welcome,
	[PBOX_DECLARE] = check_declare,
	[PBOX_DECLARED] = check_declared,
	[PBOX_MAP] = check_map,
	[PBOX_MAPPED] = check_mapped,
	[PBOX_SET] = check_set,
	[PBOX_STATUS] = check_status,
	[PBOX_STATUS_OK] = check_status_ok,
	[PBOX_ERROR] = check_error,
	[PBOX_NOT_READY] = check_not_ready,
};

/* ---- frames --------------------------------------------------------------------------- */

static void
check_header(json_t *j, const struct pbox_hdr *h)
{
	check_number(j, "type", h->type);
	check_number(j, "prio", h->prio);
	check_number(j, "flags", h->flags);
	check_number(j, "token", h->token);
	check_number(j, "job", h->job);
	check_number(j, "worker", h->worker);
	check_number(j, "incarnation", h->incarnation);
	check_number(j, "chunk", h->chunk);
	check_number(j, "frag", h->frag);
	check_number(j, "length", h->length);
	check_number(j, "round", h->round);
	check_number(j, "base", h->base);
	check_number(j, "map_epoch", h->map_epoch);
	check_number(j, "served", h->served);
	check_number(j, "format", h->format);
	check_number(j, "fmt_arg", h->fmt_arg);
	check_number(j, "aux", h->aux);
	check_number(j, "weight", h->weight);
	check_number(j, "ts", h->ts);
	check_number(j, "held", h->held);
}

static void
check_frame(json_t *f)
{
	static uint8_t raw[1 << 16], out[1 << 16];
	size_t n = from_hex(json_string_value(json_object_get(f, "hex")), raw, sizeof(raw));
	const char *drop = json_string_value(json_object_get(f, "drop"));
	bool malformed = drop != NULL && strcmp(drop, "control_malformed") == 0;
	enum pbox_wire_drop r;
	struct pbox_hdr h;
	int len;
	size_t size = 0;

	frame_name = json_string_value(json_object_get(f, "name"));
	r = pbox_frame_decode(raw, n, true, &h, &size);
	if (drop != NULL && !malformed) {
		same(strcmp(pbox_wire_drop_name(r), drop), 0, "drop");
		return;
	}
	same(r, PBOX_WIRE_OK, "drop");
	if (r != PBOX_WIRE_OK)
		return;
	same(size, n, "size");
	check_header(json_object_get(f, "header"), &h);
	same(strcmp(pbox_type_name(h.type), json_string_value(json_object_get(f, "type"))), 0,
		"name of the type");
	len = h.length;
	memcpy(out + PBOX_HDR_LEN, raw + PBOX_HDR_LEN, h.length);
	if (h.type < PBOX_FIRST_DATA_TYPE && checkers[h.type] != NULL && h.length > 0) {
		memset(out, 0xEE, sizeof(out));
		len = checkers[h.type](raw + PBOX_HDR_LEN, h.length, json_object_get(f, "payload"),
			out + PBOX_HDR_LEN, sizeof(out) - PBOX_HDR_LEN);
		same(len < 0, malformed, "malformed");
	}
	if (json_is_true(json_object_get(f, "canonical"))) {
		same((unsigned long long)len, h.length, "encoded length");
		same(pbox_frame_seal(out, &h), n, "encoded size");
		same(memcmp(out, raw, n), 0, "encoded bytes");
	}
}

static void
load(void)
{
	json_error_t error;

	if (golden != NULL)
		return;
	golden = json_load_file(GOLDEN_FRAMES, 0, &error);
	if (golden == NULL)
		printf("%s:%d: %s\n", GOLDEN_FRAMES, error.line, error.text);
	CU_ASSERT_PTR_NOT_NULL_FATAL(golden);
}

static void
test_frames(void)
{
	json_t *frames;

	load();
	frames = json_object_get(golden, "frames");
	CU_ASSERT(json_array_size(frames) > 100);
	for (size_t i = 0; i < json_array_size(frames); i++)
		check_frame(json_array_get(frames, i));
}

static void
check_datagram(json_t *d)
{
	static uint8_t raw[1 << 16];
	size_t n = from_hex(json_string_value(json_object_get(d, "hex")), raw, sizeof(raw));
	json_t *drops = json_object_get(d, "drops");
	size_t at = 0, frames = 0, size;
	struct pbox_hdr h;

	frame_name = json_string_value(json_object_get(d, "name"));
	while (at < n) {
		const char *want = json_string_value(json_array_get(drops, frames++));
		enum pbox_wire_drop r;

		size = n - at; /* unless set otherwise the rest goes with the frame */
		r = pbox_frame_decode(raw + at, n - at, at == 0, &h, &size);
		same(strcmp(pbox_wire_drop_name(r), want ? want : "frame_ok"), 0, "drop");
		at += size;
	}
	same(frames, json_array_size(drops), "frames");
}

static void
test_datagrams(void)
{
	json_t *datagrams;

	load();
	datagrams = json_object_get(golden, "datagrams");
	CU_ASSERT(json_array_size(datagrams) >= 7);
	for (size_t i = 0; i < json_array_size(datagrams); i++)
		check_datagram(json_array_get(datagrams, i));
	json_decref(golden);
	golden = NULL;
}

const struct unit_test unit_tests[] = {
	{"frames", test_frames},
	{"datagrams", test_datagrams},
	{NULL, NULL},
};
