/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Names on their way through telemetry: DPDK gets ASCII that JSON has nothing to say to. */

#include <stdio.h>
#include <string.h>

#include "../../../lib/control/utf7.h"
#include <pbox_wire.h>

#include "../unit.h"

const char unit_suite[] = "ascii";

static void
is(const char *text, const char *want)
{
	char out[128];

	CU_ASSERT_STRING_EQUAL(utf7_encode(text, out, sizeof(out)), "");
	if (strcmp(out, want) != 0)
		printf("'%s' is '%s', not '%s'\n", text, out, want);
	CU_ASSERT_STRING_EQUAL(out, want);
}

/* As Python's bytes.decode("utf-7") reads them. */
static void
names(void)
{
	is("", "");
	is("gpu-0.example/a{b}~", "gpu-0.example/a{b}~");
	is("b\xc3\xbcro", "b+APw-ro");
	is("gr\xc3\xb6\xc3\x9f"
	   "e",
		"gr+APYA3w-e");
	is("a+b", "a+-b");
	is("\"", "+ACI-");
	is("\\n\n", "+AFwAbgAK-");
	is("\xff", "+//0-"); /* U+FFFD */
	is("\xc3", "+//0-");
	is("\xc3\xbc\xc3", "+APz//Q-");
	is("\xf0\x9f\x98\x80", "+2D3eAA-");
	is("\xe9\x80\x99", "+kBk-");
	is("\xc2\x9b[2J", "+AJs-[2J");
	/* one letter among others */
	is("\xc3\xbc"
	   "a\xc3\xbc",
		"+APwAYQD8-");
}

static void
not_utf8(void)
{
	static const char *const bad[] = {"\x80", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
		"\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "a\xc3", "\xe2\x82", "\xff"};
	static const char *const good[] = {"", "a", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80",
		"\xed\x9f\xbf", "\xee\x80\x80", "\xf4\x8f\xbf\xbf"};

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT(!pbox_utf8_good(bad[i]));
	for (unsigned i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		CU_ASSERT(pbox_utf8_good(good[i]));
}

/* Any name of 63 bytes has room in the 127 of a string, or goes on in the next one; each part is whole. */
static void
parts(void)
{
	char text[64], out[128];

	for (unsigned i = 0; i < 21; i++)
		memcpy(&text[3 * i], "a\xc3\xbc", 3);
	text[63] = '\0';
	CU_ASSERT_STRING_EQUAL(utf7_encode(text, out, sizeof(out)), "");
	memset(text, '"', 63);
	CU_ASSERT_STRING_NOT_EQUAL(utf7_encode(text, out, sizeof(out)), "");
	CU_ASSERT(strlen(out) <= 127 && out[strlen(out) - 1] == '-');
	for (size_t cap = 16; cap < 28; cap++) {
		const char *rest = "\xf0\x9f\x98\x80+\xc3\xbc x\xc3\xbc";
		unsigned n = 0;

		while (*rest != '\0') {
			const char *now = utf7_encode(rest, out, cap);

			CU_ASSERT_FATAL(now > rest && strlen(out) < cap && n++ < 20);
			rest = now;
		}
	}
}

const struct unit_test unit_tests[] = {
	{"names", names},
	{"what is not UTF-8", not_utf8},
	{"parts", parts},
	{0},
};
