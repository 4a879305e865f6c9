/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>

#include "worker_impl.h"

/* Texts for people: errors, names and texts from the network. */

int
pbox_client_fail(struct pbox_client_error *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (err == NULL)
		return code;
	err->code = code;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return code;
}

void
pbox_text_add(char *text, size_t cap, const char *fmt, ...)
{
	size_t len = strnlen(text, cap);
	va_list ap;

	if (len + 1 >= cap)
		return;
	va_start(ap, fmt);
	vsnprintf(text + len, cap - len, fmt, ap);
	va_end(ap);
}

/** C0 and DEL; C1 in UTF-8. */
static bool
steers(const uint8_t *p)
{
	return p[0] < 0x20 || p[0] == 0x7f || (p[0] == 0xc2 && (p[1] & 0xe0) == 0x80);
}

const char *
pbox_text_name(char *out, const char *name)
{
	const uint8_t *p = (const uint8_t *)name;
	size_t at = 0;

	for (; *p != 0 && at + 5 < PBOX_TEXT_NAME; p++) {
		if (steers(p) || (p > (const uint8_t *)name && steers(p - 1) && p[-1] == 0xc2))
			at += (size_t)snprintf(out + at, PBOX_TEXT_NAME - at, "\\x%02x", *p);
		else if (*p == '\'' || *p == '"' || *p == '\\')
			at += (size_t)snprintf(out + at, PBOX_TEXT_NAME - at, "\\%c", *p);
		else
			out[at++] = (char)*p;
	}
	out[at] = 0;
	return out;
}

void
pbox_text_tame(char *text)
{
	for (uint8_t *p = (uint8_t *)text; *p != 0; p++) {
		if (!steers(p))
			continue;
		if (*p == 0xc2)
			*p++ = '?';
		*p = '?';
	}
}

void
text_fail(struct pbox_worker *w, int code, const char *fmt, ...)
{
	va_list ap;

	if (w->failed)
		return;
	va_start(ap, fmt);
	vsnprintf(w->fatal.text, sizeof(w->fatal.text), fmt, ap);
	va_end(ap);
	w->fatal.code = code;
	w->failed = true;
}
