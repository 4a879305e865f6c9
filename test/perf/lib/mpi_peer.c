/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 *
 * One rank of MPI's all-reduce. Compiled with mpicc and used by peers.py.
 *
 * mpi_peer DIR: reads lines "ELEMENTS ROUNDS CHECK" from the FIFO DIR/commands.RANK and answers
 * "SECONDS CPU_SECONDS WRONG" to DIR/answers.RANK; the end of the first ends the rank.
 */

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <mpi.h>

static uint32_t
mix(uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t x = a * 0x9E3779B97F4A7C15ull ^ b * 0xC2B2AE3D27D4EB4Full ^ c;

	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
	x = (x ^ x >> 27) * 0x94D049BB133111EBull;
	return (uint32_t)(x ^ x >> 31);
}

/** What pbox-perf pushes in round 1 with seed 1: in [-1, 1). */
static float
value(uint32_t base, uint32_t i)
{
	uint32_t x = i * 0x9E3779B1u ^ base;

	x = (x ^ x >> 15) * 0x85EBCA77u;
	x = (x ^ x >> 13) * 0xC2B2AE3Du;
	x ^= x >> 16;
	return (float)(int32_t)x * 0x1p-31f;
}

static void
fill(float *p, size_t n, int worker)
{
	uint32_t base = mix(1, (uint64_t)worker + 1, 1);

	for (size_t i = 0; i < n; i++)
		p[i] = value(base, (uint32_t)i);
}

/** Elements that are not the sum: in any order, so within rounding. */
static size_t
wrong(const float *p, size_t n, int workers)
{
	size_t bad = 0;

	for (size_t i = 0; i < n; i++) {
		double want = 0;

		for (int w = 0; w < workers; w++)
			want += value(mix(1, (uint64_t)w + 1, 1), (uint32_t)i);
		bad += !(fabs(p[i] - want) <= 1e-6 * workers);
	}
	return bad;
}

static double
cpu(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
	       (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e-6;
}

static FILE *
fifo(const char *dir, const char *what, int rank, const char *mode)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s.%d", dir, what, rank);
	f = fopen(path, mode);
	if (f == NULL) {
		perror(path);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	return f;
}

static void
batch(FILE *answers, size_t elements, int rounds, int check, int rank, int workers)
{
	float *p = malloc(elements * sizeof(*p) + 1);
	size_t bad = 0;
	double begin, end, used;

	if (p == NULL)
		MPI_Abort(MPI_COMM_WORLD, 1);
	fill(p, elements, rank);
	if (check) {
		MPI_Allreduce(MPI_IN_PLACE, p, (int)elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		bad = wrong(p, elements, workers);
		fill(p, elements, rank);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	used = cpu();
	begin = MPI_Wtime();
	for (int i = 0; i < rounds; i++)
		MPI_Allreduce(MPI_IN_PLACE, p, (int)elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	end = MPI_Wtime();
	used = cpu() - used;
	MPI_Barrier(MPI_COMM_WORLD);
	fprintf(answers, "%.9f %.6f %zu\n", end - begin, used, bad);
	fflush(answers);
	free(p);
}

int
main(int argc, char **argv)
{
	int rank, workers, rounds, check;
	FILE *commands, *answers;
	size_t elements;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &workers);
	commands = fifo(argv[1], "commands", rank, "r");
	answers = fifo(argv[1], "answers", rank, "w");
	while (fscanf(commands, "%zu %d %d", &elements, &rounds, &check) == 3)
		batch(answers, elements, rounds, check, rank, workers);
	MPI_Finalize();
	return 0;
}
