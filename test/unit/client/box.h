/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef BOX_H
#define BOX_H

/**
 * @file
 * A box for the tests of the client: the engine (registrar and shards) in a thread, with kernel sockets on 127.0.0.1. A
 * filter between them loses, repeats and reorders frames both ways, and lies, if asked to.
 */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/** Threads of the workers under test: 1, but in programs with threads_2.c or threads_3.c. */
extern unsigned box_threads;

struct box_conf {
	const void *ctx;          /* of the test: box_ctx() */
	const char *job, *secret; /* NULL: "job", "secret" */
	unsigned workers;
	bool no_slots;      /* a box that does not know them, and takes the JOIN none the less */
	unsigned endpoints; /* 0: box_threads */
	unsigned mtu;       /* 0: 1500 */
	unsigned window;    /* 0: 64 */
	unsigned lease_ms;  /* 0: 10000 */
	unsigned chunk;     /* elements; 0: 8192 */
	double loss, dup, reorder; /* probabilities, per frame and direction */
	uint64_t seed;
	unsigned max_datagram; /* larger ones get lost; 0: none */
	/* Each so-manieth PUSHPULL is found damaged late: the box says that it has it (HAVE) when
	 * asked, and then that it has not, with the ts of the PUSHPULL or a damaged one (R2.5). */
	unsigned take_back;
	bool take_back_ts;
	/* FETCH, PULL of the latest, a contribution, and INIT in place of what is there are first answered with a ts of a
	 * second ago, as to an earlier one: wrong elements, an old version, NO_LR; of INIT the first is lost. */
	bool stale;
	bool turns;                 /* after a restart its data endpoints have each other's ports */
	unsigned work_ms, pause_ms; /* a box that gets the CPU for a part of the time */
	bool shadows; /* somebody sends each result first: with another element, of a wrong CRC or token, and half of it */
	bool silent, deaf, version_error, hello_damaged, no_data, other_secret, full;
	bool no_room;    /* takes no contribution of worker 0, and does not say why */
	bool circle;     /* says of every worker that it waits for one that waits for it */
	bool insecure;   /* takes any secret, and says so */
	bool auth;       /* frames have tags */
	bool terse;      /* of its refusals it says the code alone */
	bool ending;     /* the job is: nobody may join */
	unsigned forger; /* somebody else answers first: RETRY, this error, a WELCOME; 0: nobody */
	unsigned short_lived; /* sessions end with their WELCOME, so many */
	bool older;           /* its WELCOME has no number of a run */
	/* somebody without keys answers each PING: no such session; the box, which is slower, from this one on */
	unsigned denier;
};

struct box_counts {
	uint64_t rx_frames, malformed, rounds;
	uint64_t restores, given, gone; /* RESTOREs; with a payload; lost fragments */
	uint64_t pings;                 /* to the control endpoint */
	uint64_t echoes, echo;          /* PINGs with a nonce, and the last one */
	unsigned echo_at;               /* the endpoint that it came to */
	uint64_t hellos;
	uint64_t waits;                   /* STATUSes that say so */
	uint64_t taken_back, asked_after; /* PULLs sent 10 ms and more after that was reported */
};

/** What workers said last. */
struct box_said {
	uint8_t run[16];          /* JOIN */
	uint64_t number;          /* JOIN */
	uint32_t flags;           /* DECLARE */
	unsigned joins, declares; /* so many in all */
	unsigned asked;           /* JOINs with an id other than that of the one before */
};

struct box;

struct box *box_start(const struct box_conf *conf);
/** "127.0.0.1:port" of the control endpoint. */
const char *box_address(const struct box *b);
const void *box_ctx(const struct box *b);
/** As after kill -9 and start: another incarnation, no sessions, no tables. */
void box_restart(struct box *b);
/** The same, and its chunks have another size from now on. */
void box_restart_chunk(struct box *b, unsigned chunk);
/** One ERROR SESSION to each worker, as if from another incarnation; nothing else happens. */
void box_forge(struct box *b);
/** Somebody without keys sends each worker: that the box stops, a result, an answer to everything. */
void box_attack(struct box *b);
/** Somebody answers the next JOINs with an error, proven by a secret (NULL: not). */
void box_refuse(struct box *b, unsigned code, unsigned joins, const char *secret);
/** All leases have run out, and the run with them: no sessions, no tables; the box goes on. */
void box_end_sessions(struct box *b);
/** Leases have run out, and the run is kept for those that come again. */
void box_silent_leases(struct box *b);
/** How many RESTOREs there may be before the box is restarted once more; 0: never. */
void box_restart_after(struct box *b, unsigned restores, unsigned declares);
/** From now on nothing is answered (or is again). */
void box_silence(struct box *b, bool on);
/** The same of the data endpoints alone. */
void box_no_data(struct box *b, bool on);
/** Ask a worker whether it lives (R4.6), and with a nonce for its address (R4.9; 0: not). endpoint: 0 is that of control. */
void box_ping(struct box *b, unsigned worker, unsigned endpoint, uint64_t nonce);
/** Say to every worker that the box stops; from then on it hears nothing, until it is restarted. */
void box_shutdown(struct box *b);
/** As box_end_sessions(), and a worker of another run has come and gone (R12.3). */
void box_run_begins(struct box *b);
/** Tables have begun (or have not): who does not go on in them hears RUNNING (R12.6). */
void box_running(struct box *b, bool on);
/** The next WELCOMEs have another number, whatever was asked for. */
void box_misnumber(struct box *b);
struct box_said box_said(struct box *b);
struct box_counts box_counts(struct box *b);
void box_stop(struct box *b);

static inline float
from_bf16(uint16_t v)
{
	uint32_t u = (uint32_t)v << 16;
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

static inline uint16_t
to_bf16(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	if ((u & 0x7FFFFFFF) > 0x7F800000)
		return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

#endif /* BOX_H */
