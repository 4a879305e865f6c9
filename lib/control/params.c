/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "params.h"

bool
params_number(const char *text, unsigned max, unsigned *out)
{
	unsigned long n = 0;

	if (*text == '\0')
		return false;
	for (; *text != '\0'; text++) {
		if (*text < '0' || *text > '9')
			return false;
		n = n * 10 + (unsigned)(*text - '0');
		if (n > max)
			return false;
	}
	*out = (unsigned)n;
	return true;
}

int
params_split(const char *params, char word[][PARAM_SIZE], unsigned n)
{
	unsigned k = 0;

	if (params == NULL || *params == '\0')
		return 0;
	for (;;) {
		size_t len = k + 1 < n ? strcspn(params, ",") : strlen(params);

		if (len >= PARAM_SIZE)
			return -1;
		memcpy(word[k], params, len);
		word[k++][len] = '\0';
		if (params[len] == '\0')
			return (int)k;
		params += len + 1;
	}
}
