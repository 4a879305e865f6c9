/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef LINK_H
#define LINK_H

/* Frames in datagrams: link.c, auth.c. */

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include <pbox_auth.h>
#include <pbox_wire.h>

#include "pbox_worker.h"

struct lane;
struct session;

/* ---- link.c: frames in datagrams ------------------------------------------------------------ */

#define LINK_IOVS   1024
#define LINK_HDRS   512
#define LINK_ECN_CE 3
#define LINK_FLAT \
	262144 /* bytes of frames in one piece: some trains, which a CPU's own cache has room for */
#define LINK_FLAT_MOST 4096 /* of a frame: of large ones a train has few pieces */
#define LINK_MIN_MTU   (PBOX_MTU_OVERHEAD + PBOX_JOIN_LEN)

/** Keys of a session with tags (auth.c). */
struct auth {
	struct pbox_auth_job *job;
	struct pbox_auth_keys keys;
};

/** The batch that is being built. */
struct link {
	struct pbox_worker_ops *port;
	unsigned n_tx, n_iovs, n_hdrs;
	size_t head_bytes; /* used of head */
	bool heads;        /* the last datagram has header-only frames */
	bool loose;        /* a payload in the batch stays until link_flush() alone */
	struct pbox_client_tx tx[PBOX_CLIENT_TX_BATCH];
	struct iovec iov[LINK_IOVS];
	uint8_t head[LINK_HDRS * (PBOX_HDR_LEN + PBOX_TAG_LEN)]; /* no gap between them */
	uint64_t tx_frames, tx_bytes, rx_frames, rx_bytes, rx_dropped, rx_drop_auth;
	size_t flat_bytes; /* used of flat */
	uint8_t flat
		[LINK_FLAT]; /* frames with payloads, no gap between them: a train is one piece */
	uint8_t gathered[UINT16_MAX]; /* a payload with a tag that is not in one piece */
};

/** A received frame; payload lives until the handler returns. */
struct rx_frame {
	struct pbox_hdr hdr;
	const uint8_t *payload;
	struct sockaddr_in from;
	bool ce;
	bool sure;         /* its tag is right, or the session has none */
	struct lane *lane; /* whose datagram it was in */
};

/** Queue a frame whose payload is in @p iov; sends the batch when it is full.
 * @param stays  the payload does, as pbox_client_tx.stays has it; else until link_flush */
void link_frame(struct link *l, const struct session *s, struct pbox_client_peer *to,
	const struct pbox_hdr *hdr, const struct iovec *iov, unsigned n, bool stays);
void link_flush(struct link *l);
/** Give @p take the frames of a datagram of the lane. */
void link_datagram(struct lane *lane, struct session *s, const struct pbox_client_rx *d,
	void (*take)(struct session *s, const struct rx_frame *f));

#endif /* LINK_H */
