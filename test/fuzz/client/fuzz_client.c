/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * A client, what its program does with it, and a box that may answer anything. The input: [flags,
 * number of program's steps, steps of two bytes, what the box does (box.c)]. Whatever comes, every
 * call ends within its deadline, a failure has a code and a text, and what is sent is sound
 * (world.c).
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TABLES  4
#define TENSORS 6
#define HANDLES 16
#define STEPS   48

enum step {
	STEP_PUSHPULL, /* which tensors, of which table */
	STEP_PUSH,
	STEP_PULL,
	STEP_INIT,
	STEP_WAIT, /* for the oldest, so many 50 ms */
	STEP_TEST,
	STEP_NOTIFY,
	STEP_DECLARE, /* shape */
	STEP_SET,
	STEP_ASK, /* status, why, statistics */
	STEP_YIELD,
	STEPS_KINDS
};

static const uint32_t sizes[] = {1, 100, 700, 3000, 0, 64, 365, 5000};

struct mem {
	struct mem *next;
	uint8_t data[];
};

static struct {
	struct pbox_client *c;
	struct {
		unsigned n;
		struct pbox_client_tensor tensor[TENSORS];
	} table[TABLES];
	unsigned tables;
	pbox_client_handle handle[HANDLES];
	unsigned n_handles;
	struct mem *mem;
	unsigned notified, asked;
} p;

static const struct pbox_client_error no_error;

static void
judge(int rc, const struct pbox_client_error *err)
{
	REQUIRE(rc <= PBOX_C_PENDING && rc >= PBOX_C_RUN_ENDED);
	REQUIRE(rc >= 0 || (err->code == rc && err->text[0] != '\0'));
	REQUIRE(memchr(err->text, '\0', sizeof(err->text)) != NULL);
}

static void
judge_text(int rc, const struct pbox_client_error *err, const char *text, size_t size)
{
	judge(rc, err);
	REQUIRE(memchr(text, '\0', size) != NULL);
}

static void
declare(uint8_t shape)
{
	static const char *const names[TENSORS] = {"a", "b", NULL, "d", "e", "f"};
	struct pbox_client_error err = no_error;
	struct pbox_client_table d = {.size = sizeof(d),
		.mode = shape & 1,
		.op = shape >> 1 & 3,
		.optimiser = (shape & 1) != 0 ? 1 + (shape >> 1 & 3) : 0,
		.push_format = 1 + (shape >> 3 & 3) % 3,
		.pull_format = 1 + (shape >> 5 & 3) % 3,
		.first_round = shape >> 7};
	unsigned t = p.tables;
	uint32_t number;
	int rc;

	if (t == TABLES)
		return;
	d.n = 1 + shape % TENSORS;
	d.tensors = p.table[t].tensor;
	for (unsigned i = 0; i < d.n; i++)
		p.table[t].tensor[i] = (struct pbox_client_tensor){names[i],
			sizes[(shape + i * 3) % (sizeof(sizes) / sizeof(sizes[0]))], i & 1};
	p.table[t].n = d.n;
	rc = pbox_client_declare(p.c, &d, 500, &number, &err);
	judge(rc, &err);
	if (rc == 0) {
		REQUIRE(number == t);
		p.tables++;
	}
}

/* Of exactly that size, until the client has been closed. */
static void *
memory(size_t size)
{
	struct mem *m = malloc(sizeof(*m) + size);

	REQUIRE(m != NULL);
	memset(m->data, 0x3c, size);
	m->next = p.mem;
	p.mem = m;
	return m->data;
}

static void
submit(unsigned kind, uint8_t a)
{
	struct pbox_client_error err = no_error;
	struct pbox_client_io io[TENSORS];
	unsigned t = a & 3, n = 0, which = 1 + (a >> 2) % 63;
	int rc;

	if (t >= p.tables || p.n_handles == HANDLES)
		return;
	for (unsigned i = 0; i < p.table[t].n; i++)
		if ((which >> i & 1) != 0) {
			size_t bytes = p.table[t].tensor[i].elements * 4;
			bool in = kind != PBOX_CLIENT_PULL;
			bool back = kind == PBOX_CLIENT_PULL || kind == PBOX_CLIENT_PUSHPULL;

			io[n++] = (struct pbox_client_io){
				i, in ? memory(bytes) : NULL, back ? memory(bytes) : NULL};
		}
	if (n == 0)
		return;
	rc = pbox_client_submit(p.c, t, (enum pbox_client_kind)kind, io, n, a, 1 + (a & 7),
		&p.handle[p.n_handles], &err);
	judge(rc, &err);
	if (rc == 0)
		p.n_handles++;
}

static void
drop_first(void)
{
	memmove(p.handle, p.handle + 1, --p.n_handles * sizeof(p.handle[0]));
}

static void
on_done(void *ctx, int code, const char *text)
{
	(void)ctx;
	REQUIRE(code <= 0 && code >= PBOX_C_CLOSED && text != NULL);
	p.notified++;
}

static void
oldest(unsigned what, uint8_t a)
{
	struct pbox_client_error err = no_error;
	int rc;

	if (p.n_handles == 0)
		return;
	if (what == STEP_WAIT) {
		uint64_t begin = world_now();

		rc = pbox_client_wait(p.c, p.handle[0], 1 + a * 50u, &err);
		/* a wait tells what it waited for, and for that asks the box */
		REQUIRE(world_now() - begin <= (a * 50u + 70000) * UINT64_C(1000000));
	} else if (what == STEP_TEST) {
		rc = pbox_client_test(p.c, p.handle[0], &err);
	} else {
		rc = pbox_client_notify(p.c, p.handle[0], on_done, NULL);
		REQUIRE(rc == 0);
		p.asked++;
		drop_first();
		return;
	}
	judge(rc, &err);
	if (rc != PBOX_C_PENDING && rc != PBOX_C_DEADLINE)
		drop_first();
}

static void
set(uint8_t a)
{
	struct pbox_client_error err = no_error;
	struct pbox_client_hyper h[2] = {{1 + a % 8, 0.1}, {1 + a / 8 % 8, 0.9}};

	judge(pbox_client_set(p.c, a & 3, a & 4 ? PBOX_ALL_GROUPS : 0, a >> 5, h, 2, &err), &err);
}

static void
ask(uint8_t a)
{
	struct pbox_client_error err = no_error;
	struct pbox_client_stats stats = {.size = sizeof(stats)};
	size_t size = 1 + a * 4u;
	char *text = memory(size);

	memset(text, 'x', size);
	judge_text(pbox_client_why(p.c, text, size, &err), &err, text, size);
	err = no_error;
	memset(text, 0, size);
	judge_text(pbox_client_status(p.c, text, size, &err), &err, text, size);
	pbox_client_stats(p.c, &stats);
	REQUIRE(stats.retransmitted_frames <= stats.tx_frames);
	pbox_client_next_round(p.c, a & 3);
}

static void
step(uint8_t what, uint8_t a)
{
	what %= STEPS_KINDS;
	if (what <= STEP_INIT)
		submit(what, a);
	else if (what <= STEP_NOTIFY)
		oldest(what, a);
	else if (what == STEP_DECLARE)
		declare(a);
	else if (what == STEP_SET)
		set(a);
	else if (what == STEP_ASK)
		ask(a);
	else
		for (unsigned i = 0; i < a % 32u; i++)
			world_yield();
}

static void
program(const uint8_t *data, unsigned steps, uint8_t flags)
{
	struct pbox_client_error err = no_error;
	struct pbox_client_conf conf;
	int rc;

	pbox_client_conf_init(&conf);
	conf.box = "127.0.0.1";
	conf.job = "job";
	conf.secret = "key";
	conf.host = "host";
	conf.worker = (flags & 1) != 0 ? 0 : -1;
	conf.workers = 1;
	conf.timeout_ms = 3000;
	conf.join_timeout_ms = 5000;
	conf.transport = "world";
	conf.keep_copies = (flags & 2) == 0;
	conf.spin_us = (flags & 4) != 0 ? 20 : 0;
	conf.gso = (flags & 8) != 0 ? 0 : -1;
	rc = pbox_client_open(&p.c, &conf, &err);
	judge(rc, &err);
	if (rc != 0)
		return;
	REQUIRE(pbox_client_worker(p.c) < pbox_client_workers(p.c));
	declare(flags >> 4 | (flags << 4 & 0x80));
	for (unsigned i = 0; i < steps; i++)
		step(data[2 * i], data[2 * i + 1]);
	pbox_client_close(p.c);
	REQUIRE(p.notified == p.asked);
}

/* The same numbers every time. */
static const char *
random_name(void)
{
	return "fuzz";
}

static uint32_t
random_word(void)
{
	return 0x01020304;
}

static void
random_bytes(void *buf, size_t n)
{
	memset(buf, 0x5a, n);
}

static struct randombytes_implementation numbers = {
	.implementation_name = random_name, .random = random_word, .buf = random_bytes};

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool begun;
	unsigned steps;

	if (size < 2)
		return 0;
	if (!begun) {
		REQUIRE(randombytes_set_implementation(&numbers) == 0 && sodium_init() >= 0);
		REQUIRE(pbox_client_transport_register(&world_transport, NULL) == 0);
		begun = true;
	}
	steps = data[1] % STEPS;
	if (steps > (size - 2) / 2)
		steps = (unsigned)((size - 2) / 2);
	memset(&p, 0, sizeof(p));
	world_begin();
	box_begin(data + 2 + 2 * steps, size - 2 - 2 * steps);
	program(data + 2, steps, data[0]);
	world_end();
	while (p.mem != NULL) {
		struct mem *next = p.mem->next;

		free(p.mem);
		p.mem = next;
	}
	return 0;
}
