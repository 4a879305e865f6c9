/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* A fuzz target over the files of folders, for compilers without libFuzzer (test/coverage). Words
 * that begin with a dash are libFuzzer's options. */

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int
replay(const char *folder, const char *name)
{
	char path[4096];
	struct stat st;
	uint8_t *data;
	size_t size;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "rb");
	if (f == NULL || fstat(fileno(f), &st) != 0) {
		perror(path);
		return 1;
	}
	if (!S_ISREG(st.st_mode)) {
		fclose(f);
		return 0;
	}
	data = malloc((size_t)st.st_size + 1);
	size = data != NULL ? fread(data, 1, (size_t)st.st_size, f) : 0;
	fclose(f);
	if (data != NULL)
		LLVMFuzzerTestOneInput(data, size);
	free(data);
	return size == (size_t)st.st_size ? 0 : 1;
}

int
main(int argc, char **argv)
{
	int failed = 0, n = 0;

	for (int i = 1; i < argc; i++) {
		struct dirent *e;
		DIR *d;

		if (argv[i][0] == '-')
			continue;
		d = opendir(argv[i]);
		if (d == NULL) {
			perror(argv[i]);
			return 1;
		}
		for (; (e = readdir(d)) != NULL; n++)
			failed |= replay(argv[i], e->d_name);
		closedir(d);
	}
	printf("%d entries replayed\n", n);
	return failed || n == 0;
}
