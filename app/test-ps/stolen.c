/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "run.h"

#define LCORE "lcore-worker" /* what EAL calls its threads */

/* The first bytes of a file of one of our threads. */
static bool
of_thread(const char *thread, const char *file, char *text, size_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%.16s/%s", thread, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, size - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	return n > 0;
}

uint64_t
run_stolen_us(void)
{
	DIR *d = opendir("/proc/self/task");
	unsigned long long ran, waited;
	uint64_t ns = 0;
	char text[64];

	for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
		if (isdigit((unsigned char)e->d_name[0]) &&
			of_thread(e->d_name, "comm", text, sizeof(text)) &&
			strncmp(text, LCORE, strlen(LCORE)) == 0 &&
			of_thread(e->d_name, "schedstat", text, sizeof(text)) &&
			sscanf(text, "%llu %llu", &ran, &waited) == 2)
			ns += waited;
	if (d != NULL)
		closedir(d);
	return ns / 1000;
}
