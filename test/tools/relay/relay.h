/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef RELAY_H
#define RELAY_H

/**
 * @file
 * A bad network between two ends that use kernel sockets. One thread: datagrams of workers come to
 * an ear (a socket on an address that they take for the box's), pass the line towards the box, and
 * leave from the socket of their worker's flow; answers come to that socket, pass the other line,
 * and leave from the ear that is the box's port they came from.
 */

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pbox_fault.h>

#define RELAY_RANGES   8
#define RELAY_EARS     256
#define RELAY_FLOWS    1024
#define RELAY_CONSOLES 8
#define RELAY_BATCH    64
#define RELAY_TEXT     8192  /* an answer */
#define RELAY_LINE     2048  /* a command */
#define RELAY_DATAGRAM 65536 /* and a little less at most */

enum relay_exit { EXIT_GOOD = 0, EXIT_FAILED = 1, EXIT_WRONG_USAGE = 2 };

/** Consecutive ports, and where what comes there goes. Addresses in network byte order, ports in
 * the host's. */
struct range {
	struct in_addr listen, to;
	uint16_t listen_port, to_port, n;
	uint16_t first_ear;
};

struct options {
	struct range range[RELAY_RANGES];
	unsigned n_ranges;
	const char *box_netns, *control;
	unsigned flows, limit, seconds;
	struct pbox_fault_conf conf[PBOX_FAULT_DIRS];
};

/** A worker's address, and the socket that the box sees instead of it. */
struct flow {
	int fd;
	bool used;
	uint32_t use; /* counts its workers: frames of an earlier one are not for the next */
	int32_t next; /* with the same hash */
	uint64_t last_ns;
	struct sockaddr_in worker;
};

struct frame {
	struct frame *next; /* free */
	uint32_t len;
	uint32_t use;
	uint16_t flow, ear;
	uint8_t tos;
	uint8_t data[RELAY_DATAGRAM];
};

/** Of a direction. in + duplicated = out + unsent + what the line counts as gone + waiting. */
struct counts {
	uint64_t in, out;
	uint64_t unsent;  /* the kernel refused to send it, or its worker's flow is another's now */
	uint64_t refused; /* not taken in: no flow is free, or not from the box */
};

struct console {
	int in, out; /* -1: none */
	unsigned len;
	char line[RELAY_LINE];
};

struct relay {
	struct options o;
	int poll, control; /* -1: none */
	bool stop;
	/* sockets.c */
	int ear[RELAY_EARS];
	unsigned n_ears;
	struct flow flow[RELAY_FLOWS];
	int32_t hash[RELAY_FLOWS];
	/* frames.c */
	struct frame *free;
	/* both directions; PBOX_FAULT_RX: towards the box */
	struct pbox_fault_line *line[PBOX_FAULT_DIRS];
	struct counts n[PBOX_FAULT_DIRS];
	uint32_t target_left[PBOX_FAULT_DIRS];
	struct console console[RELAY_CONSOLES]; /* the first: standard input */
};

/** What epoll says is ready: kind << 16 | index. */
enum source { SOURCE_EAR, SOURCE_FLOW, SOURCE_CONTROL, SOURCE_CONSOLE };

uint64_t now_ns(void);
/** A sentence to standard error; @return EXIT_FAILED. */
int failed(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- options.c: -1 to go on, or the exit status --------------------------------------------- */

int options_parse(struct options *o, int argc, char **argv);

/* ---- frames.c: buffers, and what a line does with them --------------------------------------- */

int frames_open(struct relay *r);
struct frame *frame_get(struct relay *r);
void frame_put(struct relay *r, struct frame *f);

/* ---- sockets.c ------------------------------------------------------------------------------- */

/** Ears here, flows in the network namespace of the box if one is named; the process stays there. */
int sockets_open(struct relay *r);
int sockets_watch(struct relay *r, int fd, enum source source, unsigned index);
void sockets_ignore(struct relay *r, int fd);
/** Take in what has come to an ear or a flow, a batch. */
void sockets_receive(struct relay *r, enum source source, unsigned index, uint64_t now);
/** Send what the lines let go. */
void sockets_send(struct relay *r, uint64_t now);
/** What the kernel lost before it was read. */
uint64_t sockets_missed(const struct relay *r, enum pbox_fault_dir dir);
unsigned sockets_flows(const struct relay *r);

/* ---- console.c: commands --------------------------------------------------------------------- */

int console_open(struct relay *r);
void console_accept(struct relay *r);
void console_read(struct relay *r, unsigned index);
/** The counters, a line of JSON. */
void console_counters(const struct relay *r, char *text, size_t n);
void console_close(struct relay *r);

#endif /* RELAY_H */
