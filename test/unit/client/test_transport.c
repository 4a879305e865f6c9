/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client_impl.h"
#include "unit.h"

#include "harness.h"

/*
 * A transport that holds the library to its word: kernel sockets, but what may be read late is read
 * late (at the next call, as a port would that sends from the caller's memory), what may not is
 * copied and the caller's entries are forgotten.
 */

const char unit_suite[] = "client: transports";

#define LATE 256 /* datagrams that are kept back; fewer than a box's window */

struct late {
	struct pbox_client_peer to;
	struct iovec iov[8];
	uint8_t *copy; /* of iov[0], or of everything */
	unsigned n;
};

struct fake {
	struct pbox_client_transport t;
	struct pbox_client_transport *udp;
	struct late late[LATE];
	unsigned n_late;
	pthread_t thread;
};

static atomic_uint opened, closed, attached, detached, wakes, quiesced, stayed, broken, allocated;
static atomic_bool quiet; /* since the last send */

static void
mirror(struct fake *f)
{
	f->t.more = f->udp->more;
	f->t.path_errno = f->udp->path_errno;
	f->t.path_mtu = f->udp->path_mtu;
	f->udp->train = f->t.train;
}

/** Now the memory is read. */
static void
let_go(struct fake *f)
{
	for (unsigned i = 0; i < f->n_late; i++) {
		struct late *l = &f->late[i];
		struct pbox_client_tx d = {.to = &l->to, .iov = l->iov, .n = l->n};

		for (unsigned k = 0; k < l->n; k++)
			d.bytes += (uint32_t)l->iov[k].iov_len;
		f->udp->ops->send(f->udp, &d, 1);
		free(l->copy);
	}
	f->n_late = 0;
}

static uint8_t *
flatten(uint8_t *out, const struct pbox_client_tx *d)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < d->n; at += (uint32_t)d->iov[i++].iov_len)
		memcpy(out + at, d->iov[i].iov_base, d->iov[i].iov_len);
	return out;
}

static void
keep(struct fake *f, const struct pbox_client_tx *d)
{
	struct late *l;

	if (f->n_late == LATE)
		let_go(f);
	l = &f->late[f->n_late++];
	l->to = *d->to;
	l->copy = malloc(d->bytes);
	if (d->stays && d->n <= 8) {
		memcpy(l->iov, d->iov, d->n * sizeof(l->iov[0]));
		memcpy(l->copy, d->iov[0].iov_base, d->iov[0].iov_len);
		l->iov[0].iov_base = l->copy;
		l->n = d->n;
		stayed++;
		return;
	}
	flatten(l->copy, d);
	l->iov[0] = (struct iovec){l->copy, d->bytes};
	l->n = 1;
}

static void
fake_tx(struct pbox_client_transport *t, const struct pbox_client_tx *d, unsigned n)
{
	struct fake *f = (struct fake *)t;

	quiet = false;
	broken += n == 0 || n > t->batch;
	for (unsigned i = 0; i < n; i++) {
		struct pbox_hdr h = {0};
		uint8_t flat[2048];
		uint32_t bytes = 0;
		size_t size;

		for (uint32_t k = 0; k < d[i].n; k++)
			bytes += (uint32_t)d[i].iov[k].iov_len;
		broken += bytes != d[i].bytes || d[i].bytes > t->mtu - 28;
		broken += i + 1 < n && d[i + 1].iov != d[i].iov + d[i].n;
		broken += d[i].to->addr.sin_family != AF_INET;
		/* the same peer always: what was written there is still there */
		broken += d[i].to->cookie != 0 && d[i].to->cookie != (uintptr_t)d[i].to;
		d[i].to->cookie = (uintptr_t)d[i].to;
		if (d[i].stays) {
			/* with a payload, and not one that goes again; only the header is read */
			broken += d[i].n < 2 || d[i].iov[0].iov_len != PBOX_HDR_LEN;
			broken += pbox_frame_decode(flatten(flat, &d[i]), d[i].bytes, true, &h,
					  &size) != PBOX_WIRE_OK;
			broken += (h.flags & PBOX_F_RETX) != 0;
		}
		keep(f, &d[i]);
	}
}

static unsigned
fake_rx(struct pbox_client_transport *t, const struct pbox_client_rx **out)
{
	struct fake *f = (struct fake *)t;
	unsigned n;

	let_go(f);
	n = f->udp->ops->recv(f->udp, out);
	mirror(f);
	return n;
}

static void
fake_wait(struct pbox_client_transport *t, uint64_t ns)
{
	struct fake *f = (struct fake *)t;

	let_go(f);
	f->udp->ops->wait(f->udp, ns);
	mirror(f);
}

static void
fake_wake(struct pbox_client_transport *t)
{
	struct fake *f = (struct fake *)t;

	wakes++;
	f->udp->ops->wake(f->udp);
}

static void
fake_quiesce(struct pbox_client_transport *t)
{
	let_go((struct fake *)t);
	quiesced++;
	quiet = true;
}

static void
fake_attach(struct pbox_client_transport *t)
{
	attached++;
	((struct fake *)t)->thread = pthread_self();
}

static void
fake_detach(struct pbox_client_transport *t)
{
	detached++;
	broken += !pthread_equal(((struct fake *)t)->thread, pthread_self());
}

static void *
fake_alloc(struct pbox_client_transport *t, size_t bytes)
{
	(void)t;
	allocated++;
	return malloc(bytes);
}

static void
fake_free(struct pbox_client_transport *t, void *memory)
{
	(void)t;
	allocated--;
	free(memory);
}

static void
fake_close(struct pbox_client_transport *t)
{
	struct fake *f = (struct fake *)t;

	let_go(f);
	f->udp->ops->close(f->udp);
	free(f);
	closed++;
}

static const struct pbox_client_transport_ops fake_ops;

static int
fake_open(struct pbox_client_transport **out, const struct pbox_client_transport_conf *conf,
	struct pbox_client_error *err)
{
	struct pbox_client_transport_conf plain = *conf;
	struct fake *f;
	int rc;

	if (conf->args == NULL || strcmp(conf->args, "these") != 0)
		return pbox_client_fail(err, PBOX_C_INVALID, "fake: not these arguments");
	plain.args = NULL;
	f = calloc(1, sizeof(*f));
	rc = transport_udp.open(&f->udp, &plain, err);
	if (rc != 0) {
		free(f);
		return rc;
	}
	f->t = *f->udp;
	f->t.ops = &fake_ops;
	f->t.batch = 7;
	f->t.train_max = 0;
	f->udp->train = 1;
	opened++;
	*out = &f->t;
	return 0;
}

static const struct pbox_client_transport_ops fake_ops = {
	.abi = PBOX_CLIENT_TRANSPORT_ABI,
	.name = "fake",
	.open = fake_open,
	.close = fake_close,
	.send = fake_tx,
	.recv = fake_rx,
	.wait = fake_wait,
	.wake = fake_wake,
	.quiesce = fake_quiesce,
	.attach = fake_attach,
	.detach = fake_detach,
	.alloc = fake_alloc,
	.free = fake_free,
};

/* ---- names ------------------------------------------------------------------------------- */

static struct pbox_client_error err;

static void
test_register(void)
{
	struct pbox_client_transport_ops o = fake_ops;

	CU_ASSERT_EQUAL(pbox_client_transport_register(NULL, &err), PBOX_C_INVALID);
	o.abi++;
	CU_ASSERT_EQUAL(pbox_client_transport_register(&o, &err), PBOX_C_INVALID);
	HAS("speaks interface 4, this library 3");
	o.abi--;
	o.name = "../x";
	CU_ASSERT_EQUAL(pbox_client_transport_register(&o, &err), PBOX_C_INVALID);
	o.name = "udp";
	CU_ASSERT_EQUAL(pbox_client_transport_register(&o, &err), PBOX_C_INVALID);
	HAS("another transport 'udp'");
	CU_ASSERT_EQUAL(pbox_client_transport_register(&fake_ops, &err), 0);
	CU_ASSERT_EQUAL(pbox_client_transport_register(&fake_ops, &err), 0); /* again */
	CU_ASSERT_EQUAL(pbox_client_transport_register(&fake_ops, NULL), 0);
}

static int
try_transport(const char *name, const char *args)
{
	struct box_conf conf = {.workers = 1};
	struct box *b = box_start(&conf);
	struct pbox_client_conf cc = harness_conf(b, 0, 1);
	struct pbox_client *c = NULL;
	int rc;

	cc.transport = name;
	cc.transport_args = args;
	memset(&err, 0, sizeof(err));
	rc = pbox_client_open(&c, &cc, &err);
	if (rc == 0)
		pbox_client_close(c);
	box_stop(b);
	return rc;
}

static void
test_names(void)
{
	CU_ASSERT_EQUAL(try_transport("", NULL), 0);
	CU_ASSERT_EQUAL(try_transport("udp", ""), 0);
	CU_ASSERT_EQUAL(try_transport("udp", "x=1"), PBOX_C_INVALID);
	HAS("take none");
	CU_ASSERT_EQUAL(try_transport("../../lib/x", NULL), PBOX_C_INVALID);
	HAS("is not a name");
	CU_ASSERT_EQUAL(try_transport("no_such_thing", NULL), PBOX_C_INVALID);
	HAS("libpbox-client-no_such_thing.so.1");
	CU_ASSERT_EQUAL(try_transport("fake", "others"), PBOX_C_INVALID);
	HAS("not these arguments");
	CU_ASSERT_EQUAL(try_transport("fake", "these"), 0);
	UNIT_EQ_U64(opened, closed);
	UNIT_EQ_U64(attached, opened);
	UNIT_EQ_U64(detached, opened);
}

/* ---- rounds ------------------------------------------------------------------------------ */

static const struct pbox_client_tensor model[] = {
	{"weight", 50000, 0}, {"bias", 64, 0}, {"scalar", 1, 0}, {"more", 4000, 0}};

static void
run(double loss, bool per_tensor, bool in_place)
{
	struct run r = {.box = {.workers = 3, .seed = 5, .loss = loss, .window = 200},
		.tensors = model,
		.n = 4,
		.rounds = 3,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.per_tensor = per_tensor,
		.in_place = in_place,
		.transport = "fake",
		.transport_args = "these"};
	struct run_result out;
	unsigned before = stayed;

	harness_run(&r, &out);
	if (out.failed != 0)
		CU_assertImplementation(CU_FALSE, __LINE__, out.text, __FILE__, "", CU_FALSE);
	UNIT_EQ_U64(out.mismatches, 0);
	UNIT_EQ_U64(out.checked, 3 * 3 * 54065u);
	UNIT_EQ_U64(broken, 0);
	CU_ASSERT(stayed > before);
	UNIT_EQ_U64(opened, closed);
}

static void
test_rounds(void)
{
	run(0, false, false);
	run(0, true, true); /* results overwrite what was sent from */
}

static void
test_loss(void)
{
	run(0.05, false, true);
	run(0.05, true, true);
}

/* ---- failures, wakes, memory -------------------------------------------------------------- */

struct declaring {
	struct pbox_client *c;
	const struct pbox_client_table *t;
};

static void *
declare_other(void *arg)
{
	const struct declaring *o = arg;
	uint32_t table;

	pbox_client_declare(o->c, o->t, 120000, &table, NULL);
	return NULL;
}

/* Two workers with a table of one tensor, and memory of the first one's transport for it, all zeros. */
static float *
two_workers(struct box *b, int keep_copies, struct pbox_client **c, struct pbox_client **d)
{
	struct pbox_client_conf cc = harness_conf(b, 0, 2), cd = harness_conf(b, 1, 2);
	struct pbox_client_table t = {.size = sizeof(t),
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.n = 1,
		.tensors = model};
	struct declaring other;
	pthread_t thread;
	uint32_t table;
	float *v;

	cc.transport = cd.transport = "fake";
	cc.transport_args = cd.transport_args = "these";
	cc.keep_copies = cd.keep_copies = keep_copies;
	CU_ASSERT_EQUAL_FATAL(pbox_client_open(c, &cc, &err), 0);
	CU_ASSERT_EQUAL_FATAL(pbox_client_open(d, &cd, &err), 0);
	v = pbox_client_alloc(*c, 50000 * sizeof(*v));
	CU_ASSERT_PTR_NOT_NULL_FATAL(v);
	UNIT_EQ_U64(allocated, 1);
	memset(v, 0, 50000 * sizeof(*v));
	/* both have to declare before either is answered */
	other = (struct declaring){*d, &t};
	pthread_create(&thread, NULL, declare_other, &other);
	CU_ASSERT_EQUAL_FATAL(pbox_client_declare(*c, &t, 120000, &table, &err), 0);
	pthread_join(thread, NULL);
	return v;
}

static void
test_quiesce(void)
{
	struct box_conf conf = {.workers = 2};
	struct box *b = box_start(&conf);
	struct pbox_client *c = NULL, *d = NULL;
	/* without copies a restart of the box is the end */
	float *v = two_workers(b, 0, &c, &d);
	struct pbox_client_io io = {.tensor = 0, .in = v, .out = v};
	pbox_client_handle h;
	unsigned before;

	before = quiesced;
	CU_ASSERT_EQUAL(harness_submit(c, PBOX_CLIENT_PUSHPULL, &io, 1, 0, &h, &err), 0);
	CU_ASSERT_EQUAL(pbox_client_wait(c, h, 100, &err), PBOX_C_DEADLINE); /* d has not pushed */
	UNIT_EQ_U64(quiesced, before);
	box_restart(b);
	CU_ASSERT_EQUAL(pbox_client_wait(c, h, 120000, &err), PBOX_C_LOST);
	CU_ASSERT(quiesced > before);
	CU_ASSERT(quiet); /* nothing was sent after it: v is ours again */
	pbox_client_free(c, v);
	UNIT_EQ_U64(allocated, 0);
	pbox_client_close(c);
	pbox_client_close(d);
	box_stop(b);
	UNIT_EQ_U64(broken, 0);
}

/* A caller that gives up after a deadline frees what is still being sent. */
static void
test_freed_under_way(void)
{
	struct box_conf conf = {.workers = 2};
	struct box *b = box_start(&conf);
	struct pbox_client *c = NULL, *d = NULL;
	float *v = two_workers(b, 1, &c, &d);
	struct pbox_client_io io = {.tensor = 0, .in = v, .out = v};
	void *spare = pbox_client_alloc(c, 100);

	CU_ASSERT_PTR_NOT_NULL_FATAL(spare);
	CU_ASSERT_EQUAL(pbox_client_run(c, 0, PBOX_CLIENT_PUSHPULL, &io, 1, 1, 100, &err),
		PBOX_C_DEADLINE); /* d has not pushed */
	pbox_client_free(c, spare);
	pbox_client_free(c, v);
	pbox_client_free(c, NULL);
	UNIT_EQ_U64(allocated, 2);
	/* what ends, ends before they go */
	io.in = io.out = calloc(50000, sizeof(*v));
	CU_ASSERT_PTR_NOT_NULL_FATAL(io.out);
	CU_ASSERT_EQUAL(pbox_client_run(d, 0, PBOX_CLIENT_PUSHPULL, &io, 1, 1, 120000, &err), 0);
	for (unsigned i = 0; i < 12000 && allocated > 0; i++) {
		usleep(10000);
		spare = pbox_client_alloc(c, 100);
		pbox_client_free(c, spare);
	}
	UNIT_EQ_U64(allocated, 0);
	/* nothing ends this one but close */
	v = pbox_client_alloc(c, 50000 * sizeof(*v));
	CU_ASSERT_PTR_NOT_NULL_FATAL(v);
	memset(v, 0, 50000 * sizeof(*v));
	free(io.out);
	io.in = io.out = v;
	CU_ASSERT_EQUAL(
		pbox_client_run(c, 0, PBOX_CLIENT_PUSHPULL, &io, 1, 1, 100, &err), PBOX_C_DEADLINE);
	pbox_client_free(c, v);
	UNIT_EQ_U64(allocated, 1);
	pbox_client_close(c);
	UNIT_EQ_U64(allocated, 0);
	pbox_client_close(d);
	box_stop(b);
	UNIT_EQ_U64(broken, 0);
}

static void
test_wake(void)
{
	struct box_conf conf = {.workers = 1};
	struct box *b = box_start(&conf);
	struct pbox_client_conf cc = harness_conf(b, 0, 1);
	struct pbox_client *c = NULL;
	unsigned before;
	char text[256];
	double begin, took = 0;

	cc.transport = "fake";
	cc.transport_args = "these";
	CU_ASSERT_EQUAL_FATAL(pbox_client_open(&c, &cc, &err), 0);
	for (unsigned i = 0; i < 100; i++) { /* at once, where this process has its CPU */
		usleep(20000); /* it rests, for a second or until its lease wants something */
		before = wakes;
		begin = harness_seconds();
		CU_ASSERT_EQUAL(pbox_client_why(c, text, sizeof(text), &err), 0);
		took = harness_seconds() - begin;
		CU_ASSERT(wakes > before);
		if (took < 0.5)
			break;
	}
	CU_ASSERT(took < 0.5);
	pbox_client_close(c);
	box_stop(b);
}

static void
test_plain_memory(void)
{
	struct box_conf conf = {.workers = 1};
	struct box *b = box_start(&conf);
	struct pbox_client_conf cc = harness_conf(b, 0, 1);
	struct pbox_client *c = NULL;
	void *p;

	CU_ASSERT_EQUAL_FATAL(pbox_client_open(&c, &cc, &err), 0);
	p = pbox_client_alloc(c, 1000);
	CU_ASSERT_PTR_NOT_NULL(p);
	UNIT_EQ_U64((uintptr_t)p % 64, 0);
	memset(p, 1, 1000);
	pbox_client_free(c, p);
	pbox_client_free(c, NULL);
	CU_ASSERT_PTR_NULL(pbox_client_alloc(c, SIZE_MAX - 3));
	pbox_client_close(c);
	box_stop(b);
}

/* ---- routes that take no trains, or nothing, for a time ------------------------------------- */

#define TRAIN 4

static int no_train, no_datagram; /* errno of what sends such a one; 0: it leaves */
static unsigned left_alone, left_as_train;

/* In the C library's place. */
int
sendmmsg(int fd, struct mmsghdr *m, unsigned n, int flags)
{
	int refused = m->msg_hdr.msg_controllen > 0 && no_datagram == 0 ? no_train : no_datagram;
	long sent;

	if (refused != 0) {
		errno = refused;
		return -1;
	}
	sent = syscall(SYS_sendmmsg, fd, m, n, flags);
	for (long i = 0; i < sent; i++)
		*(m[i].msg_hdr.msg_controllen > 0 ? &left_as_train : &left_alone) += 1;
	return (int)sent;
}

ssize_t
sendmsg(int fd, const struct msghdr *h, int flags)
{
	if (no_datagram != 0) {
		errno = no_datagram;
		return -1;
	}
	left_alone++;
	return syscall(SYS_sendmsg, fd, h, flags);
}

/* TRAIN full datagrams, and two short ones that no train takes. */
static void
send_some(struct pbox_client_transport *t, struct pbox_client_peer *to)
{
	static uint8_t header[104], payload[800];
	struct iovec iov[2 * (TRAIN + 2)];
	struct pbox_client_tx d[TRAIN + 2];

	left_alone = left_as_train = 0;
	for (unsigned i = 0; i < TRAIN + 2; i++) {
		iov[2 * i] = (struct iovec){header, sizeof(header)};
		iov[2 * i + 1] = (struct iovec){payload, i < TRAIN ? sizeof(payload) : 10 * i};
		d[i] = (struct pbox_client_tx){.to = to, .iov = &iov[2 * i], .n = 2};
		d[i].bytes = (uint32_t)(sizeof(header) + iov[2 * i + 1].iov_len);
	}
	t->ops->send(t, d, TRAIN);
	t->ops->send(t, d + TRAIN, 2);
}

static void
test_trains(void)
{
	struct box_conf conf = {.workers = 1};
	struct box *b = box_start(&conf);
	struct pbox_client_conf cc = harness_conf(b, 0, 1);
	struct pbox_client_transport_conf c = {.box = {.sin_family = AF_INET}, .mtu = 1500};
	struct pbox_client_transport *t = NULL;
	struct pbox_client_peer to;

	c.box.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	c.box.sin_port = htons((uint16_t)atoi(strrchr(cc.box, ':') + 1));
	to = (struct pbox_client_peer){.addr = c.box};
	CU_ASSERT_EQUAL_FATAL(transport_udp.open(&t, &c, &err), 0);
	t->train = TRAIN; /* as the worker does, when the path takes them */
	send_some(t, &to);
	UNIT_EQ_U64(left_as_train, 1);

	/* a black hole takes nothing, and says nothing about trains */
	no_train = no_datagram = EINVAL;
	send_some(t, &to);
	UNIT_EQ_U64(t->train, TRAIN);
	UNIT_EQ_U64(t->tx_failed, TRAIN + 2);
	UNIT_EQ_U64(t->path_errno, ENETUNREACH);
	no_train = no_datagram = 0;
	send_some(t, &to);
	UNIT_EQ_U64(left_as_train, 1);

	/* a device that takes no trains: nothing is lost */
	no_train = EIO;
	send_some(t, &to);
	UNIT_EQ_U64(t->train, 1);
	UNIT_EQ_U64(left_alone, TRAIN + 2);
	UNIT_EQ_U64(t->tx_failed, TRAIN + 2);
	for (unsigned i = 0; i < 1000; i++) { /* however often it is tried again */
		send_some(t, &to);
		UNIT_EQ_U64(left_alone, TRAIN + 2);
	}
	UNIT_EQ_U64(t->tx_failed, TRAIN + 2);
	no_train = 0; /* another one takes its place */
	for (unsigned i = 0; i < 1000 && left_as_train == 0; i++)
		send_some(t, &to);
	UNIT_EQ_U64(left_as_train, 1);
	UNIT_EQ_U64(t->train, TRAIN);

	t->train = 1; /* the worker has found that they do not arrive: that holds */
	for (unsigned i = 0; i < 1000; i++)
		send_some(t, &to);
	UNIT_EQ_U64(t->train, 1);
	transport_udp.close(t);
	box_stop(b);
}

/** Where there are no sockets any more a lane keeps those that it has: the number of a closed one may be another file's. */
static void
test_no_socket_left(void)
{
	struct box_conf conf = {.workers = 1};
	struct box *b = box_start(&conf);
	struct pbox_client_conf cc = harness_conf(b, 0, 1);
	struct pbox_client_transport_conf c = {.box = {.sin_family = AF_INET}, .mtu = 1500};
	struct pbox_client_transport *t = NULL, *lane = NULL;
	struct pbox_client_peer to;
	const struct sockaddr_in *from = &c.box;
	struct rlimit old, none;

	c.box.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	c.box.sin_port = htons((uint16_t)atoi(strrchr(cc.box, ':') + 1));
	to = (struct pbox_client_peer){.addr = c.box};
	CU_ASSERT_EQUAL_FATAL(transport_udp.open(&t, &c, &err), 0);
	send_some(t, &to); /* that gives it a port */
	CU_ASSERT_EQUAL_FATAL(transport_udp.lane(t, &lane, &err), 0);
	CU_ASSERT_EQUAL_FATAL(transport_udp.aim(lane, &from, 1, &err), 0);
	getrlimit(RLIMIT_NOFILE, &old);
	none = (struct rlimit){0, old.rlim_max};
	setrlimit(RLIMIT_NOFILE, &none);
	CU_ASSERT_NOT_EQUAL(transport_udp.aim(lane, &from, 1, &err), 0);
	setrlimit(RLIMIT_NOFILE, &old);
	send_some(lane, &to);
	UNIT_EQ_U64(lane->tx_failed, 0);
	CU_ASSERT(left_alone + left_as_train > 0);
	transport_udp.close(lane);
	transport_udp.close(t);
	box_stop(b);
}

const struct unit_test unit_tests[] = {
	{"a lane without a new socket", test_no_socket_left},
	{"registering", test_register},
	{"names", test_names},
	{"rounds from memory that stays", test_rounds},
	{"the same with loss", test_loss},
	{"a failed operation gives its memory back", test_quiesce},
	{"memory that is given back under way", test_freed_under_way},
	{"a resting thread is woken", test_wake},
	{"memory with kernel sockets", test_plain_memory},
	{"trains come back with the route", test_trains},
	{NULL, NULL},
};
