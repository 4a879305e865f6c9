/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* One worker of a data-parallel job: average gradients over all workers, ten times.
 *
 *   cc example.c $(pkg-config --cflags --libs pbox-client) -o example
 *   ./example 10.0.0.1 myjob mysecret 2     (on two hosts)
 */

#include <stdio.h>
#include <stdlib.h>

#include <pbox_client.h>

#define WEIGHTS 10000
#define BIASES  10

int
main(int argc, char **argv)
{
	static const struct pbox_client_tensor tensors[] = {
		{"fc.weight", WEIGHTS, 0}, {"fc.bias", BIASES, 0}};
	struct pbox_client_table t = {.size = sizeof(t),
		.mode = 0,        /* all-reduce */
		.op = 1,          /* mean */
		.push_format = 1, /* fp32 */
		.pull_format = 1,
		.n = 2,
		.tensors = tensors};
	static float weight[WEIGHTS], bias[BIASES];
	/* in and out may be the same memory: the mean replaces the gradient */
	struct pbox_client_io io[] = {{0, weight, weight}, {1, bias, bias}};
	struct pbox_client_error err;
	struct pbox_client_conf conf;
	struct pbox_client *c;
	uint32_t table;

	if (argc != 5) {
		fprintf(stderr, "usage: %s BOX JOB SECRET WORKERS\n", argv[0]);
		return 2;
	}
	pbox_client_conf_init(&conf);
	conf.box = argv[1];
	conf.job = argv[2];
	conf.secret = argv[3];
	conf.workers = (unsigned)atoi(argv[4]);
	if (pbox_client_open(&c, &conf, &err) != 0) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	if (pbox_client_declare(c, &t, 0, &table, &err) != 0)
		goto fail;
	for (int round = 1; round <= 10; round++) {
		for (int i = 0; i < WEIGHTS; i++) /* in place of the backward pass */
			weight[i] = (float)(round + (int)pbox_client_worker(c));
		if (pbox_client_run(c, table, PBOX_CLIENT_PUSHPULL, io, 2, 1, 0, &err) != 0)
			goto fail;
		printf("round %d: the mean is %g\n", round, (double)weight[0]);
	}
	pbox_client_close(c);
	return 0;
fail:
	fprintf(stderr, "%s\n", err.text);
	pbox_client_close(c);
	return 1;
}
