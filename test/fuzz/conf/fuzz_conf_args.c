/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Any words, one a line, as the command line of pbox. */

#include <stdlib.h>
#include <string.h>

#include <pbox_options.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WORDS 32

static struct pbox_options o;

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text, *argv[WORDS] = {(char *)"pbox"};
	struct pbox_error err = {0, ""};
	struct pbox_conf *conf;
	int argc = 1, ret;

	/* "file:" would let the input read files of this machine */
	if (size > 8192 || memmem(data, size, "file:", 5) != NULL)
		return 0;
	text = malloc(size + 1); /* of this size so that ASan sees an overrun */
	PBOX_ASSERT(text != NULL);
	memcpy(text, data, size);
	text[size] = '\0';
	for (char *s = text; s != NULL && argc < WORDS;)
		argv[argc++] = strsep(&s, "\n");
	conf = pbox_conf_new(&pbox_options_table, &o, &err);
	PBOX_ASSERT(conf != NULL);
	ret = pbox_conf_args(conf, argc, argv, &err);
	PBOX_ASSERT((ret != 0) == (err.text[0] != '\0'));
	PBOX_ASSERT(o.n_ports <= PBOX_OPTIONS_PORTS && o.n_jobs <= PBOX_OPTIONS_JOBS);
	if (ret == 0 && pbox_conf_complete(conf, &err) == 0)
		pbox_options_check(&o, conf, &err);
	pbox_conf_free(conf);
	free(text);
	return 0;
}
