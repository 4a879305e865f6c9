/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef TESTPS_OPTIONS_H
#define TESTPS_OPTIONS_H

/** @file The command line after "--": one table, from which parser, --help and
 * pbox-testps(1) are made. */

#include <pbox_conf.h>
#include <pbox_modes.h>
#include <pbox_slots.h>
#include <pbox_wire.h>

#define TESTPS_WORKERS_MAX 1024
#define TESTPS_CORES_MAX   32
#define TESTPS_BURST_MAX   256
#define TESTPS_BOXES_MAX   16
#define TESTPS_SLOT_TIMES  16
#define TESTPS_RATE_MAX    UINT64_C(1000000000000) /* contributions a second */

enum testps_help { TESTPS_HELP_NONE, TESTPS_HELP_SHORT, TESTPS_HELP_ALL };
enum testps_worker { TESTPS_FAST, TESTPS_LIBRARY };
enum testps_search { TESTPS_SEARCH_NONE, TESTPS_NDR, TESTPS_PDR };

/** The target of the table, as it was written. */
struct testps_options {
	enum testps_help help;
	bool version;
	/* testpmd's */
	bool interactive, auto_start;
	uint32_t stats_period, nb_cores, rxq, txq, rxd, txd, burst, mbufs, mtu;
	char cmdline_file[256], json[256];
	/* where the box is, and who we are */
	char box[512], box_mac[32], job[PBOX_NAME_LEN];
	struct pbox_conf_secret secret;
	struct pbox_conf_prefix address;
	uint8_t gateway[4];
	bool hosts, loopback, reflected, auth;
	/* the load */
	uint32_t workers, fragment, window;
	char model[256], dtype[32], compute[32], loss[16], straggler[32];
	int optimiser;
	uint32_t rounds;
	uint64_t duration_ns, rate, timeout_ns;
	bool no_check;
	enum pbox_idle idle;
	/* searches */
	enum testps_search search;
	uint64_t trial_ns, memory;
	char sweep_workers[128];
	/* --worker library */
	enum testps_worker worker;
	uint32_t slots, wrong_round;
	int policy, discipline;
	char bound[16], slot_time[256];
	/* what these say */
	bool bounded;
	uint32_t bound_steps;
	unsigned n_slot_times;
	uint64_t slot_time_us[TESTPS_SLOT_TIMES];
};

extern const struct pbox_conf_table testps_options_table;

/** What follows from the words: set again by the prompt. */
struct testps_load {
	unsigned workers, fragment, window;
	char model[256];
	uint8_t push, pull; /**< enum pbox_format */
	uint8_t optimiser;  /**< enum pbox_optimiser */
	double loss;        /**< of the frames, each way: 0 to 1 */
	int straggler;      /**< worker number, -1: none */
	uint32_t straggler_us;
	uint64_t rate;       /**< contributions a second, of all workers; 0: as fast as they go */
	bool profile;        /**< compute times of the model's file */
	uint64_t compute_us; /**< or of a whole round, shared out by size */
};

/** Read the command line after "--" (argv[0] is skipped). NULL and @p err. */
struct pbox_conf *testps_options_load(
	struct testps_options *o, int argc, char *const argv[], struct pbox_error *err);
/** The words of the options as numbers. -EINVAL and @p err. */
int testps_load_of(struct testps_load *l, const struct testps_options *o, struct pbox_error *err);
/** One word each; 0 or -EINVAL, with what would be right in @p err. */
int testps_dtype(struct testps_load *l, const char *text, struct pbox_error *err);
/** Do data type and optimiser go together? 0 or -EINVAL. */
int testps_blocks_check(const struct testps_load *l, struct pbox_error *err);
int testps_percent(double *share, const char *text, struct pbox_error *err);
int testps_straggler(struct testps_load *l, const char *text, struct pbox_error *err);
/** Is there such a worker? 0 or -EINVAL. */
int testps_straggler_check(const struct testps_load *l, struct pbox_error *err);
int testps_optimiser(struct testps_load *l, const char *text, struct pbox_error *err);
/** "10.0.0.1" or "10.0.0.1:7269"; @p ip in network order. */
int testps_box(const char *text, uint32_t *ip, uint16_t *port, struct pbox_error *err);
/** The same of several, apart by commas: the @p i th; 1, or 0: there are no more. */
int testps_box_at(
	const char *text, unsigned i, uint32_t *ip, uint16_t *port, struct pbox_error *err);
/** Numbers apart by commas, each 1 to TESTPS_WORKERS_MAX: how many, or -EINVAL. */
int testps_numbers(const char *text, unsigned *out, unsigned max, struct pbox_error *err);

#endif /* TESTPS_OPTIONS_H */
