/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_JOB_TYPES_H
#define PBOX_JOB_TYPES_H

/**
 * @file
 * What is known of jobs outside of the engine: limits, addresses of workers, sections of the configuration.
 *
 * The jobs themselves (pbox_job.h) are the engine's. Others name one by a pointer that the engine gave them, and look
 * at it through pbox_registrar_view.h.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pbox_bounds.h>

#define PBOX_MAX_JOBS        256
#define PBOX_MAX_TABLES      1024
#define PBOX_MAX_JOB_TENSORS (1u << 21) /**< of all tables of a job (R5.1) */
#define PBOX_MAX_SHARDS      128

/** Where a worker's frames come from and answers go to. Addresses in network byte order. */
struct pbox_peer {
	uint32_t ip, local_ip;   /**< worker's, ours */
	uint16_t udp, local_udp; /**< host byte order */
	uint16_t port;           /**< ethdev port, or what the caller of the engine likes */
	uint8_t mac[6];          /**< worker's, or its router's */
};

/** What the operator configured for a job: a section of the configuration. */
struct pbox_job_conf {
	const char *name; /**< "*": template for names that are not configured */
	const char *secret;
	size_t secret_len;
	uint32_t workers; /**< 0: what the first worker says */
	struct pbox_job_bounds bounds;
	uint32_t max_jobs; /**< of "*": at the same time; 0: as many as the box has room for */
	bool auth;         /**< frames have tags (section 11 of the protocol) */
	bool snapshot;     /**< its tables are written now and then (lib/control) */
	uint64_t
		snapshot_space; /**< bytes of their files; of "*" those of all its jobs; 0: no bound */
	int8_t policy; /**< enum pbox_policy: ANY: what the workers ask for, all the same */
};

enum pbox_job_state {
	PBOX_JOB_OPENING, /**< shards do not know it yet */
	PBOX_JOB_OPEN,
	PBOX_JOB_CLOSING, /**< shards are letting go of it */
};

/** Of the engine. */
struct pbox_job;

#endif /* PBOX_JOB_TYPES_H */
