/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef OPTIONS_ROWS_H
#define OPTIONS_ROWS_H

#include "pbox_options.h"

#define US UINT64_C(1000)
#define MS (1000 * US)
#define S  (1000 * MS)
#define K  UINT64_C(1024)
#define M  (1024 * K)
#define G  (1024 * M)

/* A row of the table of TARGET, and one of a number, size or duration with its range. */
#define ROW(kind, name, member, ...) PBOX_CONF_ROW(TARGET, kind, name, member, __VA_ARGS__)
#define RANGE(kind, name, member, least, most, ...) \
	ROW(kind, name, member, .min = (least), .max = (most), __VA_ARGS__)

/* job_options.c: the rows of [job NAME] */
#define CONF_JOB_OPTIONS 14
extern const struct pbox_conf_option conf_job_options[];

/* cluster_options.c: the rows of [cluster NAME], and their checks */
#define CONF_CLUSTER_OPTIONS 11
extern const struct pbox_conf_option conf_cluster_options[];
int conf_cluster_name(const char *name, struct pbox_error *err);
int conf_cluster_check(
	const struct pbox_options *o, const struct pbox_conf *conf, struct pbox_error *err);

/* options_check.c: do these go together (doc/modes.md)? Where not, the message names the option's value. */
int conf_pair(
	const struct pbox_conf *conf, const void *value, uint32_t uses, struct pbox_error *err);
/* The same of the policy of each job. */
int conf_policies(const struct pbox_options *o, const struct pbox_conf *conf, uint32_t uses,
	struct pbox_error *err);

/* rack_options.c: upstream and rack */
int conf_rack_check(
	const struct pbox_options *o, const struct pbox_conf *conf, struct pbox_error *err);

#endif /* OPTIONS_ROWS_H */
