/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_CLIENT_TRANSPORT_H
#define PBOX_CLIENT_TRANSPORT_H

/**
 * @file
 * What carries the datagrams of a client. libpbox-client has one back end built in, "udp" (kernel
 * sockets); others register here, or are found by their name (pbox_client_conf.transport):
 * for "NAME" the library loads libpbox-client-NAME.so.1 and takes its symbol
 * pbox_client_transport_NAME, a `struct pbox_client_transport_ops`.
 *
 * A back end knows addresses and bytes, nothing of the protocol: frames, checksums, windows and
 * timers are the library's, the same for all.
 *
 * Threads: one instance belongs to one client. open is called by the thread of pbox_client_open,
 * which goes on to send, receive and wait until the session is open; then the progress thread does,
 * between attach and detach; close comes after its end. No two of these at the same time. Only
 * wake, alloc and free may be called by any thread at any time between open and close. Opens of several clients
 * may run at the same time. A client with several threads has an instance for each (lane, below): send and recv of one are
 * called by one thread at a time, mostly its own; wait by its own alone.
 */

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "pbox_client.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PBOX_CLIENT_TRANSPORT_ABI 3

/** An instance: the first member of the back end's own structure. */
struct pbox_client_transport {
	const struct pbox_client_transport_ops *ops;

	/* facts, set by open */
	unsigned mtu;       /**< IP MTU towards the box, at most 65535 */
	unsigned batch;     /**< datagrams in one send, 1 to PBOX_CLIENT_TX_BATCH */
	unsigned window;    /**< full datagrams that may arrive at once without a loss */
	unsigned train_max; /**< full datagrams that can leave as one unit; 0 or 1: no such thing */

	/* kept up to date by the back end */
	bool more;          /**< the last recv may have left something */
	bool merging;       /**< datagrams have come several as one unit (GRO) */
	int path_errno;     /**< latest errno that the network reported (ICMP); 0: none */
	unsigned path_mtu;  /**< that it reported with EMSGSIZE; 0: none */
	uint64_t tx_failed; /**< datagrams lost inside, counted as sent by others */
	uint64_t tx_by_ref, tx_copied; /**< payload bytes sent from the caller's memory; copied */
	uint64_t rx_failed;            /**< datagrams lost inside, in the view of the back end */

	/* set by the library after open */
	unsigned train; /**< datagrams that may leave as one unit; the back end may lower it to 1 */
	/**
	 * For the next wait: it need not return for a datagram before so much time has passed, so
	 * that more can come. 0: at once. A back end that wakes up at no cost ignores it.
	 */
	uint64_t gather_ns;
};

/** What open is given; strings live until it returns. */
struct pbox_client_transport_conf {
	struct sockaddr_in box; /**< control endpoint */
	const char *args;       /**< pbox_client_conf.transport_args, or NULL */
	const char *bind;       /**< local address as text, or NULL */
	unsigned mtu;           /**< wanted IP MTU; 0: the route's */
	unsigned timeout_ms;    /**< for what open has to wait for */
};

struct pbox_client_transport_ops {
	unsigned abi; /**< PBOX_CLIENT_TRANSPORT_ABI */
	const char *name;
	/** 0 and *out, or a PBOX_C_* code with the cause in @p err (never NULL). */
	int (*open)(struct pbox_client_transport **out,
		const struct pbox_client_transport_conf *conf, struct pbox_client_error *err);
	void (*close)(struct pbox_client_transport *t);
	/** Send @p n datagrams, at most t->batch; does not wait for longer than a queue takes to
	 * drain. A datagram that cannot be sent is lost and counted: the protocol retransmits. */
	void (*send)(struct pbox_client_transport *t, const struct pbox_client_tx *d, unsigned n);
	/** Take what has arrived, without waiting: returns how many, and in *out the first of an array of the
	 * back end's. Frees those of the last recv. Sets t->more. */
	unsigned (*recv)(struct pbox_client_transport *t, const struct pbox_client_rx **out);
	/** Return when something has arrived, after @p ns, or after wake: whichever is first. A
	 * wake before the wait counts. */
	void (*wait)(struct pbox_client_transport *t, uint64_t ns);
	void (*wake)(struct pbox_client_transport *t);
	/** Return when no memory of a datagram with `stays` will be read any more. May be NULL. */
	void (*quiesce)(struct pbox_client_transport *t);
	/** First and last call of the progress thread. May be NULL. */
	void (*attach)(struct pbox_client_transport *t);
	void (*detach)(struct pbox_client_transport *t);
	/** Memory for zero copy, from which the back end can send, for pbox_client_alloc: any
	 * thread, also at the same time as other calls. Both or none: then any memory will do. */
	void *(*alloc)(struct pbox_client_transport *t, size_t bytes);
	void (*free)(struct pbox_client_transport *t, void *memory);
	/** Another instance with the local address of @p t, for a thread of its own: @p t goes on to get all that aim does not
	 * name. It is closed before @p t. 0 and *out, or a code with @p err. Both or none (NULL): then the client has one thread. */
	int (*lane)(struct pbox_client_transport *t, struct pbox_client_transport **out,
		struct pbox_client_error *err);
	/** A lane gets what comes from these @p n endpoints from now on, and nothing else. 0, or a code with @p err, and then
	 * it is as before. The lane's own thread calls it, or it has none yet. */
	int (*aim)(struct pbox_client_transport *lane, const struct sockaddr_in *const *from,
		unsigned n, struct pbox_client_error *err);
};

/**
 * Make a back end known, under its name, to later calls of pbox_client_open in this process. Any
 * thread. @p ops must live as long as the process. PBOX_C_INVALID: another ABI, no name, or the
 * name is taken by another one (the same one again is good); PBOX_C_MEMORY: too many.
 */
PBOX_CLIENT_API int pbox_client_transport_register(
	const struct pbox_client_transport_ops *ops, struct pbox_client_error *err);

#ifdef __cplusplus
}
#endif

#endif /* PBOX_CLIENT_TRANSPORT_H */
