/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <pbox_conf.h>

#include "unit.h"

const char unit_suite[] = "values of options";

static const char *const colours[] = {"red", "green", "blue", NULL};

struct values {
	bool on;
	uint32_t u32, ranged, zero;
	uint64_t u64, size, time;
	char text[8];
	int colour;
	uint8_t ip[4];
	struct pbox_conf_prefix prefix;
	struct pbox_conf_cores cores;
	struct pbox_conf_secret secret;
};

#define AT(member) PBOX_CONF_AT(struct values, member)

static const struct pbox_conf_option options[] = {
	{.name = "on", .type = PBOX_CONF_BOOL, AT(on), .brief = "x"},
	{.name = "u32", .type = PBOX_CONF_U32, AT(u32), .brief = "x"},
	{.name = "ranged",
		.type = PBOX_CONF_U32,
		AT(ranged),
		.min = 5,
		.max = 9,
		.unit = "things",
		.def = "7",
		.brief = "x"},
	{.name = "zero",
		.type = PBOX_CONF_U32,
		AT(zero),
		.min = 5,
		.max = 9,
		.zero = "auto",
		.brief = "x"},
	{.name = "u64", .type = PBOX_CONF_U64, AT(u64), .brief = "x"},
	{.name = "size",
		.type = PBOX_CONF_SIZE,
		AT(size),
		.min = 4096,
		.max = 1u << 30,
		.def = "1M",
		.brief = "x"},
	{.name = "time",
		.type = PBOX_CONF_DURATION,
		AT(time),
		.max = UINT64_C(3600000000000),
		.brief = "x"},
	{.name = "text", .type = PBOX_CONF_STRING, AT(text), .brief = "x"},
	{.name = "colour", .type = PBOX_CONF_ENUM, AT(colour), .names = colours, .brief = "x"},
	{.name = "ip", .type = PBOX_CONF_IPV4, AT(ip), .brief = "x"},
	{.name = "prefix", .type = PBOX_CONF_PREFIX, AT(prefix), .brief = "x"},
	{.name = "cores", .type = PBOX_CONF_CORES, AT(cores), .zero = "all", .brief = "x"},
	{.name = "secret", .type = PBOX_CONF_SECRET, AT(secret), .min = 8, .brief = "x"},
};
static const struct pbox_conf_section section = {
	.name = "", .options = options, .n_options = sizeof(options) / sizeof(options[0])};
static const struct pbox_conf_table table = {.program = "t", .sections = &section, .n_sections = 1};

static struct values v;

/* Parse `text` as f.conf; the message is in err. */
static int
parse(const char *text, struct pbox_error *err)
{
	struct pbox_conf *conf = pbox_conf_new(&table, &v, err);
	int ret = pbox_conf_text(conf, "f.conf", text, strlen(text), err);

	pbox_conf_free(conf);
	return ret;
}

static void
good(const char *text)
{
	struct pbox_error err = {0, ""};

	if (parse(text, &err) != 0)
		CU_FAIL(err.text);
	if (err.text[0] != '\0')
		printf("\n%s: %s\n", text, err.text);
}

static void
bad(const char *text, const char *message)
{
	struct pbox_error err = {0, "(accepted)"};

	CU_ASSERT(parse(text, &err) < 0);
	CU_ASSERT_STRING_EQUAL(err.text, message);
	if (strcmp(err.text, message) != 0)
		printf("\n got: %s\nwant: %s\n", err.text, message);
}

static void
test_bool(void)
{
	static const char *const yes[] = {"on = yes", "on=true", "on = on", "on = 1"};
	static const char *const no[] = {"on = no", "on=false", "on = off", "on = 0"};

	for (unsigned i = 0; i < 4; i++) {
		good(yes[i]);
		CU_ASSERT_TRUE(v.on);
		good(no[i]);
		CU_ASSERT_FALSE(v.on);
	}
	bad("on = maybe", "f.conf line 1: on: 'maybe' is not yes or no");
	bad("on =", "f.conf line 1: on: has no value");
	bad("on = # yes", "f.conf line 1: on: has no value");
}

static void
test_numbers(void)
{
	good("u32 = 4294967295");
	UNIT_EQ_U64(v.u32, UINT32_MAX);
	bad("u32 = 4294967296", "f.conf line 1: u32: '4294967296' is out of range");
	good("u64 = 18446744073709551615");
	UNIT_EQ_U64(v.u64, UINT64_MAX);
	bad("u64 = 18446744073709551616",
		"f.conf line 1: u64: '18446744073709551616' is not a whole number");
	bad("u32 = -1", "f.conf line 1: u32: '-1' is not a whole number");
	bad("u32 = 0x10", "f.conf line 1: u32: '0x10' is not a whole number");
	bad("u32 = 1K", "f.conf line 1: u32: '1K' is not a whole number");
	good("ranged = 5");
	good("ranged = 9");
	bad("ranged = 4", "f.conf line 1: ranged: '4' is out of range: 5 to 9 things");
	bad("ranged = 10", "f.conf line 1: ranged: '10' is out of range: 5 to 9 things");
	UNIT_EQ_U64(v.ranged, 7); /* the default stays */
	good("zero = auto");
	UNIT_EQ_U64(v.zero, 0);
	bad("zero = 0", "f.conf line 1: zero: '0' is out of range: 5 to 9, or auto");
	bad("zero = atuo", "f.conf line 1: zero: 'atuo' is not a whole number, or auto");
}

static void
test_sizes_and_times(void)
{
	good("size = 4096");
	UNIT_EQ_U64(v.size, 4096);
	good("size = 32K");
	UNIT_EQ_U64(v.size, 32768);
	good("size = 3 MiB");
	UNIT_EQ_U64(v.size, 3 << 20);
	good("size = 1G");
	bad("size = 2G", "f.conf line 1: size: '2G' is out of range: 4K to 1G");
	bad("size = 99999999999999G",
		"f.conf line 1: size: '99999999999999G' is out of range: 4K to 1G");
	bad("size = 5k", "f.conf line 1: size: '5k' is not a size like 4096, 32K, 2M or 1G");
	good("time = 250us");
	UNIT_EQ_U64(v.time, 250000);
	good("time = 20ms");
	UNIT_EQ_U64(v.time, 20000000);
	good("time = 3600 s");
	good("time = 0");
	UNIT_EQ_U64(v.time, 0);
	bad("time = 30",
		"f.conf line 1: time: '30' is not a time with its unit, like 30s, 20ms or 250us");
	bad("time = 3601s", "f.conf line 1: time: '3601s' is out of range: 0 to 3600s");
	bad("time = 18446744073710s",
		"f.conf line 1: time: '18446744073710s' is out of range: 0 to 3600s");
}

static void
test_strings_and_enums(void)
{
	good("text = a b");
	CU_ASSERT_STRING_EQUAL(v.text, "a b");
	good("text = \" a#\\\"\\\\ \"  # comment");
	CU_ASSERT_STRING_EQUAL(v.text, " a#\"\\ ");
	good("text = a#b ;c");
	CU_ASSERT_STRING_EQUAL(v.text, "a#b");
	bad("text = 12345678", "f.conf line 1: text: '12345678' is too long: at most 7 characters");
	bad("text = \"abc", "f.conf line 1: text: the value's quotes do not close");
	bad("text = \"abc\\", "f.conf line 1: text: the value's quotes do not close");
	bad("text = \"a\" b", "f.conf line 1: text: the value's quotes do not close");
	bad("text = a\tb", "f.conf line 1: text: 'a\tb' holds a control character");
	good("colour = blue");
	UNIT_EQ_U64(v.colour, 2);
	bad("colour = gren",
		"f.conf line 1: colour: 'gren' is not red, green or blue: did you mean 'green'?");
	bad("colour = 2", "f.conf line 1: colour: '2' is not red, green or blue");
}

static void
test_addresses(void)
{
	good("ip = 10.1.2.3");
	CU_ASSERT(v.ip[0] == 10 && v.ip[1] == 1 && v.ip[2] == 2 && v.ip[3] == 3);
	bad("ip = 10.1.2", "f.conf line 1: ip: '10.1.2' is not an IPv4 address like 10.0.0.1");
	good("prefix = 10.1.2.3/24");
	CU_ASSERT(v.prefix.addr[0] == 10 && v.prefix.addr[3] == 3 && v.prefix.len == 24);
	bad("prefix = 10.1.2.3",
		"f.conf line 1: prefix: '10.1.2.3' lacks the length of its network: like 10.1.2.3/24");
	static const char *const wrong[] = {"10.1.2.3/", "10.1.2.3/0", "10.1.2.3/33", "10.1.2/8",
		"/8", "10.1.2.256/8", "10.1.2.3/8/8", "10.1.2.3 /8", "1000000000000000000000/8"};

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		char text[64], message[200];

		snprintf(text, sizeof(text), "prefix = %s", wrong[i]);
		snprintf(message, sizeof(message),
			"f.conf line 1: prefix: '%s' is not an IPv4 address with a network length, like 10.0.0.1/24",
			wrong[i]);
		bad(text, message);
	}
}

static void
test_cores(void)
{
	good("cores = 0,2-4, 1023");
	UNIT_EQ_U64(pbox_conf_cores_count(&v.cores), 5);
	CU_ASSERT(pbox_conf_core_in(&v.cores, 0) && pbox_conf_core_in(&v.cores, 2));
	CU_ASSERT(pbox_conf_core_in(&v.cores, 4) && pbox_conf_core_in(&v.cores, 1023));
	CU_ASSERT(!pbox_conf_core_in(&v.cores, 1) && !pbox_conf_core_in(&v.cores, 5000));
	good("cores = all");
	UNIT_EQ_U64(pbox_conf_cores_count(&v.cores), 0);
	bad("cores = 1,1", "f.conf line 1: cores: '1,1' names core 1 twice");
	bad("cores = 1024",
		"f.conf line 1: cores: '1024' is out of range: cores are 0 to 1023, lower-upper");
	bad("cores = 4-2",
		"f.conf line 1: cores: '4-2' is out of range: cores are 0 to 1023, lower-upper");
	bad("cores = 1,", "f.conf line 1: cores: '1,' is not a list of cores like 0,2-4");
	bad("cores = 1-", "f.conf line 1: cores: '1-' is not a list of cores like 0,2-4");
	bad("cores = x", "f.conf line 1: cores: 'x' is not a list of cores like 0,2-4");
}

static void
write_file(const char *path, const char *text, size_t n)
{
	FILE *f = fopen(path, "w");

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	CU_ASSERT_EQUAL(fwrite(text, 1, n, f), n);
	fclose(f);
}

static void
test_secrets(void)
{
	char dir[] = P_tmpdir "/pbox-conf-XXXXXX", path[64], text[400], message[200];

	good("secret = hunter22");
	CU_ASSERT(v.secret.len == 8 && memcmp(v.secret.bytes, "hunter22", 8) == 0);
	bad("secret = hunter2",
		"f.conf line 1: secret: is too short: at least 8 characters, or file:PATH");
	bad("secret = hunter\x01zw",
		"f.conf line 1 holds a control character (0x01): is this a text file?");
	memset(text, 'x', sizeof(text));
	memcpy(text, "secret=", 7);
	text[7 + 256] = '\0';
	bad(text, "f.conf line 1: secret: is too long: at most 255 bytes");
	text[7 + 255] = '\0';
	good(text);
	UNIT_EQ_U64(v.secret.len, 255);

	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/s", dir);
	snprintf(text, sizeof(text), "secret = file:%s", path);
	write_file(path, "abc\r\n", 5);
	snprintf(message, sizeof(message),
		"f.conf line 1: secret: %s is too short: at least 8 characters, as of openssl rand -hex 16",
		path);
	bad(text, message);
	write_file(path, "hunter22\r\n", 10);
	good(text);
	CU_ASSERT(v.secret.len == 8 && memcmp(v.secret.bytes, "hunter22", 8) == 0);
	write_file(path, "\n", 1);
	snprintf(message, sizeof(message), "f.conf line 1: secret: %s is empty", path);
	bad(text, message);
	write_file(path, message, 200);
	good(text);
	unlink(path);
	snprintf(message, sizeof(message),
		"f.conf line 1: secret: cannot read %s: No such file or directory", path);
	bad(text, message);
	snprintf(text, sizeof(text), "secret = file:%s", dir);
	snprintf(message, sizeof(message), "f.conf line 1: secret: %s is not a regular file", dir);
	bad(text, message);
	rmdir(dir);
}

static void
test_secrets_are_never_shown(void)
{
	static const char *const lines[] = {"secret hunter2", "secret = \"hunter2",
		"secret = hunter2", "secret = hunter22x\nsecret = hunter22"};
	char buf[200];
	struct pbox_error err;
	struct pbox_conf *conf;
	FILE *f;

	for (unsigned i = 0; i < 4; i++) {
		CU_ASSERT(parse(lines[i], &err) < 0);
		CU_ASSERT_PTR_NULL(strstr(err.text, "hunter"));
	}
	conf = pbox_conf_new(&table, &v, NULL);
	CU_ASSERT_EQUAL(pbox_conf_text(conf, "f.conf", lines[3], 19, NULL), 0);
	CU_ASSERT_STRING_EQUAL(pbox_conf_where(conf, &v.secret, buf, sizeof(buf)),
		"secret = (set) (f.conf line 1)");
	f = fmemopen(buf, sizeof(buf), "w");
	pbox_conf_dump(conf, f);
	fclose(f);
	CU_ASSERT_PTR_NULL(memmem(buf, sizeof(buf), "hunter", 6));
	pbox_conf_free(conf);
}

/* What dump writes is read back as the same values. */
static void
test_dump_can_be_read(void)
{
	static const char text[] =
		"on = yes\nu32 = 3\nsize = 6M\ntime = 1500ms\ntext = \"a#\\\"\\\\ b\"\ncolour = green\n"
		"ip = 10.0.0.1\nprefix = 10.0.0.2/9\ncores = 1,3-5,700\nu64 = 77\n";
	static struct values first;
	char buf[2000] = "", again[2000] = "";
	struct pbox_error err = {0, ""};
	struct pbox_conf *conf = pbox_conf_new(&table, &v, NULL);
	FILE *f = fmemopen(buf, sizeof(buf), "w");

	CU_ASSERT_EQUAL(pbox_conf_text(conf, "f.conf", text, strlen(text), &err), 0);
	pbox_conf_dump(conf, f);
	fclose(f);
	pbox_conf_free(conf);
	first = v;
	conf = pbox_conf_new(&table, &v, NULL);
	CU_ASSERT_EQUAL(pbox_conf_text(conf, "f.conf", buf, strlen(buf), &err), 0);
	CU_ASSERT_STRING_EQUAL(err.text, "");
	f = fmemopen(again, sizeof(again), "w");
	pbox_conf_dump(conf, f);
	fclose(f);
	pbox_conf_free(conf);
	CU_ASSERT_STRING_EQUAL(first.text, "a#\"\\ b");
	CU_ASSERT_STRING_EQUAL(first.text, v.text);
	CU_ASSERT(first.size == v.size && first.time == v.time && first.u64 == v.u64);
	CU_ASSERT_EQUAL(memcmp(&first.cores, &v.cores, sizeof(v.cores)), 0);
	CU_ASSERT_EQUAL(memcmp(&first.prefix, &v.prefix, sizeof(v.prefix)), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(again, "cores = 1,3-5,700  # f.conf line"));
}

const struct unit_test unit_tests[] = {
	{"bool", test_bool},
	{"numbers, ranges and words for 0", test_numbers},
	{"sizes and times", test_sizes_and_times},
	{"strings, quotes and enums", test_strings_and_enums},
	{"addresses", test_addresses},
	{"core lists", test_cores},
	{"secrets, given and in files", test_secrets},
	{"secrets are never shown", test_secrets_are_never_shown},
	{"a dump can be read", test_dump_can_be_read},
	{NULL, NULL},
};
