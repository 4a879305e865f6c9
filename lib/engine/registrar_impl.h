/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef REGISTRAR_IMPL_H
#define REGISTRAR_IMPL_H

/* What the files of the registrar share. */

#include "engine_auth.h"
#include "pbox_registrar.h"
#include "shard_impl.h"

#define NS_PER_US   UINT64_C(1000)
#define NS_PER_MS   UINT64_C(1000000)
#define COOKIE_NS   (UINT64_C(8000) * NS_PER_MS) /* R4.2 */
#define NEVER_SEEN  UINT32_MAX
#define LEFT_NONCES PBOX_MAX_WORKERS

/* A control payload fits the smallest MTU that is allowed, with a tag behind it. */
#define CONTROL_PAYLOAD (1500 - PBOX_MTU_OVERHEAD - PBOX_TAG_LEN)

#define KICKED 64

/* A session that an operator has ended. */
struct kicked {
	uint64_t nonce;
	char why[256];
};

struct pbox_registrar {
	struct pbox_registrar_conf conf;
	uint8_t cookie_key[PBOX_COOKIE_KEY_LEN];
	struct pbox_job **job; /* max_jobs, by number */
	uint64_t load[PBOX_MAX_ENDPOINTS];
	uint32_t reserved; /* of conf.hold, by jobs */
	unsigned endpoints_per_shard;
	uint64_t now_ns;
	struct error_rate error_rate;
	uint64_t version_told_ns; /* when HELLOs of other versions were last logged; 0: never */
	unsigned versions_untold; /* since then */
	/* Of the latest sessions that left: a JOIN of theirs that comes late opens none. */
	uint64_t left[LEFT_NONCES];
	unsigned n_left;
	struct kicked kicked[KICKED]; /* the latest ones */
	unsigned n_kicked;
	bool stopping, draining;
	uint64_t measuring_ns; /* until then answers to PINGs are expected */
	struct pbox_place place[PBOX_MAX_ENDPOINTS];
	uint64_t *stats;
	struct {
		struct pbox_stage *stage; /* NULL: no copy is under way */
		struct pbox_job *job;     /* NULL: it is gone */
		uint32_t table;
		unsigned mails; /* unanswered */
		bool ending;
		int outcome;
		uint64_t asked_at;
	} staged;
	struct engine_tag tag;
	uint8_t scratch[CONTROL_PAYLOAD];
};

static inline void
count_control(struct pbox_registrar *r, enum pbox_registrar_stat what)
{
	pbox_stat_add(&r->stats[what], 1);
}

/* registrar_join.c: a HELLO of who speaks only versions from min to max (R2.2) */
void registrar_other_version(
	struct pbox_registrar *r, const struct pbox_frame *f, unsigned min, unsigned max);
/* The section of the configuration for a job of that name, or NULL */
const struct pbox_job_conf *registrar_find_conf(const struct pbox_registrar *r, const char *name);
/* registrar.c */
void registrar_event(struct pbox_registrar *r, enum pbox_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Answer with len bytes of scratch. job and worker may be unknown yet. */
void registrar_reply(
	struct pbox_registrar *r, const struct pbox_frame *f, enum pbox_type type, size_t len);
/* Answer ERROR; never longer than the request before the proof (R4.7). */
void registrar_refuse(struct pbox_registrar *r, const struct pbox_frame *f, enum pbox_errcode code,
	uint32_t detail, const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* To a worker of the job, in its session: with a tag if it has them. */
void registrar_send(struct pbox_registrar *r, const struct pbox_job *job, struct pbox_send *out);
uint32_t registrar_silent_ms(
	const struct pbox_registrar *r, const struct pbox_job *job, unsigned worker);
void registrar_close_job(struct pbox_registrar *r, struct pbox_job *job);

/* registrar_join.c */
void registrar_on_hello(struct pbox_registrar *r, const struct pbox_frame *f);
void registrar_on_join(struct pbox_registrar *r, const struct pbox_frame *f);
void registrar_on_job_open(struct pbox_registrar *r, struct pbox_job *job);
void registrar_end_session(struct pbox_registrar *r, struct pbox_job *job, unsigned worker);

/* registrar_claim.c */
/* Somebody (host) claims the number of worker w, who has a session, or any number: true when it is
 * free for him; else he was answered. */
bool registrar_claim(struct pbox_registrar *r, struct pbox_job *job, unsigned w,
	const struct pbox_frame *f, const char *host, bool any);
void registrar_claim_tick(struct pbox_registrar *r, struct pbox_job *job);
/* A PING to a worker with a session, which answers it at once. */
void registrar_ping(struct pbox_registrar *r, const struct pbox_job *job, unsigned w);

/* registrar_members.c */
/* Policy shrink: go on without a worker that is silent or has left. True: so it is, and
 * registrar_removed() must follow, once for all that are removed at this moment. */
bool registrar_remove(struct pbox_registrar *r, struct pbox_job *job, unsigned w);
void registrar_removed(struct pbox_registrar *r, struct pbox_job *job);
/* And with one that has come back. */
void registrar_expect(struct pbox_registrar *r, struct pbox_job *job, unsigned w);
/* All shards know who is waited for. */
bool registrar_members_settled(const struct pbox_registrar *r, const struct pbox_job *job);
void registrar_members_back(struct pbox_registrar *r, struct pbox_shard_job *j);
void registrar_why_back(struct pbox_why_page *page);

/* registrar_table.c */
void registrar_build_tables(struct pbox_registrar *r, struct pbox_job *job);
void registrar_on_declare(
	struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job);
void registrar_on_map(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job);
void registrar_forget_tables(struct pbox_job *job, unsigned worker);
void registrar_forgive_tables(struct pbox_job *job);
void registrar_release_tables(struct pbox_registrar *r, struct pbox_job *job);
/* MAP is answered with this error from now on. by: whose fault it is, or PBOX_NO_WORKER. */
void registrar_fail_table(struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt,
	const struct pbox_error *err, int code, uint16_t by);

/* registrar_restore.c */
bool registrar_is_restorer(const struct pbox_job_table *jt, unsigned worker);
/* A page of a declaration, the worker's first of this table or a later one; 0 or -EINVAL. */
int registrar_restore_page(struct pbox_job_table *jt, unsigned worker, bool first, uint32_t flags,
	struct pbox_error *err);
/* The table is laid out and no shard knows it: which fragments take contributions, which wait for
 * INIT or for its restorers? */
void registrar_restore_begin(
	struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt);
/* What shard i has to do of it, before it knows it. */
void registrar_restore_shard(const struct pbox_registrar *r, struct pbox_job_table *jt,
	unsigned shard, struct pbox_shard_table *st);
/* Fragments that are not restored yet. With the last one ends the restoring. */
uint32_t registrar_restoring(
	struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt);
/* Restoring, and no fragment is restored yet: no shard looks at its schedules. */
bool registrar_restore_untouched(const struct pbox_registrar *r, const struct pbox_job *job,
	const struct pbox_job_table *jt);
void registrar_restore_text(const struct pbox_job_table *jt, uint32_t left,
	const struct pbox_job *job, char *text, size_t cap);
void registrar_restore_tick(struct pbox_registrar *r, struct pbox_job *job);
/* A session ends, or its worker is not expected any more (R10.7). */
void registrar_restorer_gone(struct pbox_registrar *r, struct pbox_job *job, unsigned worker);

/* registrar_stage.c */
void registrar_stage_mail(struct pbox_registrar *r, const struct pbox_mail *m);
void registrar_stage_job_gone(struct pbox_registrar *r, const struct pbox_job *job);
/* Highest finished round of a table on any shard. */
uint32_t registrar_finished(
	const struct pbox_registrar *r, const struct pbox_job *job, uint32_t table);

/* registrar_operator.c: a JOIN with this nonce is refused, and was answered so. */
bool registrar_was_kicked(struct pbox_registrar *r, const struct pbox_frame *f, uint64_t nonce);
void registrar_measure_tick(struct pbox_registrar *r, struct pbox_job *job);
/* A PING of a worker has come, perhaps the answer to one of the box. */
void registrar_measured(const struct pbox_registrar *r, struct pbox_member *m);

/* registrar_requests.c */
void registrar_on_set(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job);
void registrar_on_status(
	struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job);
void registrar_on_leave(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job);

#endif /* REGISTRAR_IMPL_H */
