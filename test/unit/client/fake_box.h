/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef FAKE_BOX_H
#define FAKE_BOX_H

/**
 * @file
 * A small box for the tests of the client: one thread, kernel sockets on 127.0.0.1, built on
 * lib/wire alone and written from doc/protocol.md. One job; all-reduce and SGD. It loses, repeats
 * and reorders frames both ways if asked to.
 */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/** Threads of the workers under test: 1, but in programs with threads_2.c or threads_3.c. */
extern unsigned fake_threads;

struct fake_conf {
	const char *job, *secret; /* NULL: "job", "secret" */
	unsigned workers;
	unsigned slots;     /* of the job (R5.2b), 16 at most; 0: as many as workers */
	bool plans;         /* it knows WORK, and all JOINs ask for it */
	bool no_slots;      /* a box that does not know them, and takes the JOIN none the less */
	unsigned endpoints; /* 0: fake_threads */
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
	bool shadows; /* somebody sends each result first, with another element: of a wrong CRC, of a wrong token */
	bool silent, deaf, version_error, hello_damaged, no_data, other_secret, full;
	bool no_room;    /* takes no contribution of worker 0, and does not say why */
	bool circle;     /* says of every worker that it waits for one that waits for it */
	bool insecure;   /* takes any secret, and says so */
	bool auth;       /* frames have tags */
	bool ending;     /* the job is: nobody may join */
	unsigned forger; /* somebody else answers first: RETRY, this error, a WELCOME; 0: nobody */
	unsigned short_lived; /* sessions end with their WELCOME, so many */
	/* somebody without keys answers each PING: no such session; the box, which is slower, from this one on */
	bool older; /* its WELCOME has no number of a run */
	unsigned denier;
};

struct fake_counts {
	uint64_t rx_frames, rx_bytes, tx_frames, tx_bytes, lost, malformed, duplicates, rounds;
	uint64_t order;                       /* hash of the order in which contributions came */
	uint64_t restores, given, gone, sets; /* RESTOREs; payloads; fragments lost; SETs */
	uint64_t pings;                       /* to the control endpoint */
	uint64_t echoes, echo;                /* PINGs with a nonce, and the last one */
	unsigned echo_at;                     /* the endpoint that it came to */
	uint64_t hellos;
	uint64_t waits;                   /* STATUSes that say so */
	uint64_t taken_back, asked_after; /* PULLs sent 10 ms and more after that was reported */
};

/** What workers said last. */
struct fake_said {
	uint8_t run[16];          /* JOIN */
	uint64_t number;          /* JOIN */
	uint32_t flags;           /* DECLARE */
	unsigned joins, declares; /* so many in all */
	unsigned asked;           /* JOINs with an id other than that of the one before */
};

struct fake_box;

struct fake_box *fake_start(const struct fake_conf *conf);
/** "127.0.0.1:port" of the control endpoint. */
const char *fake_address(const struct fake_box *b);
/** As after kill and start: another incarnation, no sessions, no tables. */
void fake_restart(struct fake_box *b);
/** The same, and its chunks have another size from now on. */
void fake_restart_chunk(struct fake_box *b, unsigned chunk);
/** One ERROR SESSION to each worker, as if from another incarnation; nothing else happens. */
void fake_forge(struct fake_box *b);
/** Somebody without keys sends each worker: that the box stops, a result, an answer to everything. */
void fake_attack(struct fake_box *b);
/** Somebody answers the next JOINs with an error, proven by a secret (NULL: not). */
void fake_refuse(struct fake_box *b, unsigned code, unsigned joins, const char *secret);
/** The sessions end (as when leases have run out), tables and rounds stay. */
void fake_end_sessions(struct fake_box *b);
/** How many RESTOREs there may be before the box is restarted once more; 0: never. */
void fake_restart_after(struct fake_box *b, unsigned restores, unsigned declares);
/** From now on nothing is answered (or is again). */
void fake_silence(struct fake_box *b, bool on);
/** The same of the data endpoints alone. */
void fake_no_data(struct fake_box *b, bool on);
/** Ask a worker whether it lives (R4.6), and with a nonce for its address (R4.9; 0: not). endpoint: 0 is that of control. */
void fake_ping(struct fake_box *b, unsigned worker, unsigned endpoint, uint64_t nonce);
/** Say to every worker that the box stops; from then on it hears nothing, until it is restarted. */
void fake_shutdown(struct fake_box *b);
/** A worker of another run joins (R12.3): sessions and tables of the one that is there end. */
void fake_run_begins(struct fake_box *b);
/** Tables have begun (or have not): who does not go on in them hears RUNNING (R12.6). */
void fake_running(struct fake_box *b, bool on);
/** The next WELCOMEs have another number, whatever was asked for. */
void fake_misnumber(struct fake_box *b);
struct fake_said fake_said(struct fake_box *b);
struct fake_counts fake_counts(struct fake_box *b);
/** Chunk of the first contribution that came after the last call of this. */
uint32_t fake_first_chunk(struct fake_box *b);
void fake_stop(struct fake_box *b);

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

#endif /* FAKE_BOX_H */
