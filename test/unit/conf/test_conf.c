/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <pbox_conf.h>

#include "unit.h"

const char unit_suite[] = "option table, file and command line";

struct item {
	char name[PBOX_CONF_NAME_MAX + 1];
	uint32_t mtu;
	struct pbox_conf_cores cores;
	char note[32];
	struct pbox_conf_prefix address;
};

struct target {
	int help;
	bool check;
	uint32_t hold;
	uint32_t workers;
	char config[32];
	unsigned n;
	struct item ports[3];
	unsigned n_jobs;
	struct item jobs[1];
};

#define AT(member)      PBOX_CONF_AT(struct target, member)
#define ITEM_AT(member) PBOX_CONF_AT(struct item, member)

static const char *const helps[] = {"none", "short", "all", NULL};

static const struct pbox_conf_option global[] = {
	{.name = "help",
		.letter = 'h',
		.type = PBOX_CONF_ENUM,
		AT(help),
		.names = helps,
		.flags = PBOX_CONF_OPTIONAL_ARG | PBOX_CONF_CLI_ONLY,
		.brief = "x"},
	{.name = "check", .type = PBOX_CONF_BOOL, AT(check), .brief = "x"},
	{.name = "hold",
		.letter = 'o',
		.type = PBOX_CONF_U32,
		AT(hold),
		.def = "42",
		.max = 100,
		.brief = "x"},
	{.name = "max-workers", .type = PBOX_CONF_U32, AT(workers), .brief = "x"},
	{.name = "config",
		.letter = 'c',
		.type = PBOX_CONF_PATH,
		AT(config),
		.flags = PBOX_CONF_CLI_ONLY,
		.brief = "x"},
};
static const struct pbox_conf_option port[] = {
	{.name = "mtu", .type = PBOX_CONF_U32, ITEM_AT(mtu), .def = "1500", .brief = "x"},
	{.name = "cores", .type = PBOX_CONF_CORES, ITEM_AT(cores), .brief = "x"},
	{.name = "note", .type = PBOX_CONF_STRING, ITEM_AT(note), .brief = "x"},
	{.name = "address",
		.type = PBOX_CONF_PREFIX,
		ITEM_AT(address),
		.flags = PBOX_CONF_REQUIRED,
		.example = "10.0.0.1/24",
		.brief = "x"},
};
static const struct pbox_conf_option job[] = {
	{.name = "note", .type = PBOX_CONF_STRING, ITEM_AT(note), .brief = "x"},
};

static int
no_x(const char *name, struct pbox_error *err)
{
	return strchr(name, 'x') != NULL ? pbox_fail(err, EINVAL, "names have no x") : 0;
}

static const struct pbox_conf_section sections[] = {
	{.name = "", .options = global, .n_options = 5},
	{.name = "port",
		.options = port,
		.n_options = 4,
		.items_at = offsetof(struct target, ports),
		.item_size = sizeof(struct item),
		.count_at = offsetof(struct target, n),
		.max = 3,
		.sample_name = "0",
		.check_name = no_x},
	{.name = "job",
		.options = job,
		.n_options = 1,
		.items_at = offsetof(struct target, jobs),
		.item_size = sizeof(struct item),
		.count_at = offsetof(struct target, n_jobs),
		.max = 1,
		.sample_name = "a"},
};
static const struct pbox_conf_table table = {.program = "t", .sections = sections, .n_sections = 3};

static struct target t;
static struct pbox_error err;

/* args: words with | between them; NULL: none. file: text; NULL: none. */
static struct pbox_conf *
load(const char *args, const char *file)
{
	struct pbox_conf *conf;
	char words[512], *argv[16] = {(char *)"t"};
	int argc = 1, ret = 0;

	memset(&t, 0xaa, sizeof(t)); /* nothing may depend on what was there */
	memset(&err, 0, sizeof(err));
	conf = pbox_conf_new(&table, &t, &err);
	if (args != NULL) {
		snprintf(words, sizeof(words), "%s", args);
		for (char *s = strtok(words, "|"); s != NULL; s = strtok(NULL, "|"))
			argv[argc++] = s;
		ret = pbox_conf_args(conf, argc, argv, &err);
	}
	if (ret == 0 && file != NULL)
		ret = pbox_conf_text(conf, "f.conf", file, strlen(file), &err);
	if (ret == 0)
		return conf;
	pbox_conf_free(conf);
	return NULL;
}

static void
good(const char *args, const char *file)
{
	struct pbox_conf *conf = load(args, file);

	CU_ASSERT_PTR_NOT_NULL(conf);
	CU_ASSERT_STRING_EQUAL(err.text, "");
	if (conf == NULL)
		printf("\n%s\n", err.text);
	pbox_conf_free(conf);
}

static void
bad(const char *args, const char *file, const char *message)
{
	struct pbox_conf *conf = load(args, file);

	CU_ASSERT_PTR_NULL(conf);
	CU_ASSERT_STRING_EQUAL(err.text, message);
	if (strcmp(err.text, message) != 0)
		printf("\n got: %s\nwant: %s\n", err.text, message);
	pbox_conf_free(conf);
}

static void
test_defaults(void)
{
	good(NULL, NULL);
	CU_ASSERT(t.hold == 42 && !t.check && t.workers == 0 && t.help == 0);
	CU_ASSERT(t.config[0] == '\0' && t.n == 0 && t.n_jobs == 0);
	good(NULL, "[port 0]\n");
	CU_ASSERT(t.n == 1 && t.ports[0].mtu == 1500 && t.ports[0].note[0] == '\0');
	CU_ASSERT_STRING_EQUAL(t.ports[0].name, "0");
}

static void
test_file_syntax(void)
{
	good(NULL, "\xef\xbb\xbf# comment\r\n\r\n  hold=7 ; more\r\n\t; x\n[ port   0 ] # y\n"
		   "mtu = 9000\n[port net tap]\nnote = \"z\"");
	CU_ASSERT(t.hold == 7 && t.n == 2 && t.ports[0].mtu == 9000 && t.ports[1].mtu == 1500);
	CU_ASSERT_STRING_EQUAL(t.ports[1].name, "net tap");
	CU_ASSERT_STRING_EQUAL(t.ports[1].note, "z");
	good(NULL, "");
	bad(NULL, "\nhold 7", "f.conf line 2: no = after 'hold': write key = value");
	bad(NULL, "[port 0", "f.conf line 1: the section's name is not closed by ]");
	bad(NULL, "[port 0]x", "f.conf line 1: there is something after the ]");
	bad(NULL, "[port 0] mtu = 3", "f.conf line 1: there is something after the ]");
	bad(NULL, "[port]", "f.conf line 1: [port] needs a name: [port 0]");
	bad(NULL, "[port 0x]", "f.conf line 1: [port 0x]: names have no x");
	bad(NULL, "= 3", "f.conf line 1: unknown option '': '--help all' lists them");
	bad(NULL, "a\x7f", "f.conf line 1 holds a control character (0x7f): is this a text file?");
	bad(NULL, "[port 1234567890123456789012345678901234567890123456789012345678901234]",
		"f.conf line 1: the name of the [port] is longer than 63 bytes");
}

static void
test_long_lines_and_nul(void)
{
	static char text[PBOX_CONF_LINE_MAX + 2];
	struct pbox_conf *conf = pbox_conf_new(&table, &t, NULL);

	memset(text, '#', sizeof(text));
	CU_ASSERT_EQUAL(pbox_conf_text(conf, "f", text, PBOX_CONF_LINE_MAX, &err), 0);
	CU_ASSERT_EQUAL(pbox_conf_text(conf, "f", text, 1, &err), -EINVAL);
	CU_ASSERT_STRING_EQUAL(err.text, "f was read already");
	pbox_conf_free(conf);
	conf = pbox_conf_new(&table, &t, NULL);
	CU_ASSERT_EQUAL(pbox_conf_text(conf, "f", text, PBOX_CONF_LINE_MAX + 1, &err), -EINVAL);
	CU_ASSERT_STRING_EQUAL(err.text, "f line 1 is longer than 1024 bytes");
	pbox_conf_free(conf);
	conf = pbox_conf_new(&table, &t, NULL);
	CU_ASSERT_EQUAL(pbox_conf_text(conf, "f", "a\0b", 3, &err), -EINVAL);
	pbox_conf_free(conf);
}

static void
test_unknown_words_get_a_suggestion(void)
{
	bad(NULL, "holt = 3", "f.conf line 1: unknown option 'holt': did you mean 'hold'?");
	bad(NULL, "max_workers = 3",
		"f.conf line 1: unknown option 'max_workers': did you mean 'max-workers'?");
	bad(NULL, "banana = 3", "f.conf line 1: unknown option 'banana': '--help all' lists them");
	bad(NULL, "[prot 0]", "f.conf line 1: unknown section [prot]: did you mean [port 0]?");
	bad(NULL, "[global]", "f.conf line 1: unknown section [global]: '--help all' lists them");
	bad(NULL, "[port 0]\nmut = 9000",
		"f.conf line 2: unknown option 'mut' in [port]: did you mean 'mtu'?");
	bad(NULL, "mtu = 9000", "f.conf line 1: 'mtu' belongs to [port NAME]");
	bad(NULL, "[port 0]\nhold = 3",
		"f.conf line 2: 'hold' is a global option: write it above the first section");
	bad(NULL, "config = x",
		"f.conf line 1: 'config' can only be given on the command line: --config");
	bad("--holt=3", NULL, "command line: unknown option 'holt': did you mean 'hold'?");
	bad("--prt|0:mtu=3", NULL, "command line: unknown option 'prt': did you mean 'port'?");
	bad("--mtu=3", NULL, "command line: 'mtu' belongs to a port: write --port NAME:mtu=VALUE");
	bad("--port=0:hold=3", NULL, "command line: 'hold' is a global option: give it by itself");
	bad("-x", NULL, "command line: unknown option -x: '--help' lists them");
	bad("hold", NULL, "command line: 'hold' is not an option: options begin with --");
	bad("--", NULL, "command line: '--' is not an option: options begin with --");
	bad("-", NULL, "command line: '-' is not an option: options begin with --");
}

static void
test_duplicates_name_both_places(void)
{
	bad(NULL, "hold = 3\n\nhold = 3", "f.conf line 3: 'hold' is given twice: first in line 1");
	bad(NULL, "[port 0]\nmtu = 3\nmtu = 4",
		"f.conf line 3: 'mtu' of [port 0] is given twice: first in line 2");
	bad(NULL, "[port 0]\n[port 1]\n[port 0]",
		"f.conf line 3: [port 0] is in line 1 already: put its options there");
	bad("--hold|3|--check|--hold=4", NULL,
		"command line: 'hold' is given twice, in arguments 1 and 4");
	bad("--port|0:mtu=3|--port=0:mtu=4", NULL,
		"command line: 'mtu' of [port 0] is given twice, in arguments 1 and 3");
	/* an overridden one is still a duplicate */
	bad("--hold=9", "hold = 3\nhold = 3",
		"f.conf line 2: 'hold' is given twice: first in line 1");
	bad(NULL, "[port 0]\n[port 1]\n[port 2]\n[port 3]",
		"f.conf line 4: too many [port] sections: at most 3");
}

static void
test_command_line(void)
{
	good("--hold|9|--check|--config=a=b", NULL);
	CU_ASSERT(t.hold == 9 && t.check);
	CU_ASSERT_STRING_EQUAL(t.config, "a=b");
	good("-o|8|-cfile|--check=no", NULL);
	CU_ASSERT(t.hold == 8 && !t.check);
	CU_ASSERT_STRING_EQUAL(t.config, "file");
	good("--help", NULL);
	CU_ASSERT_EQUAL(t.help, 1);
	good("--help|all", NULL);
	CU_ASSERT_EQUAL(t.help, 2);
	good("-h|--check", NULL);
	CU_ASSERT(t.help == 1 && t.check);
	bad("--hold", NULL, "command line: --hold needs a value after it");
	bad("--hold=", NULL, "command line: hold: has no value");
	bad("--hold=101", NULL, "command line: hold: '101' is out of range: 0 to 100");
	bad("--port", NULL, "command line: --port needs NAME:key=value,... after it");
}

static void
test_sections_on_the_command_line(void)
{
	good("--port|0:mtu=9000,cores=0,2-4,note=a,b|--port|0000:03:00.0:note=c:d=e|--port|0:address=10.0.0.1/8",
		NULL);
	CU_ASSERT(t.n == 2 && t.ports[0].mtu == 9000 && t.ports[0].address.len == 8);
	UNIT_EQ_U64(pbox_conf_cores_count(&t.ports[0].cores), 4);
	CU_ASSERT_STRING_EQUAL(t.ports[0].note, "a,b");
	CU_ASSERT_STRING_EQUAL(t.ports[1].name, "0000:03:00.0");
	CU_ASSERT_STRING_EQUAL(t.ports[1].note, "c:d=e");
	bad("--port|0", NULL, "command line: write --port NAME:key=value,key=value (argument 1)");
	bad("--port|mtu=3", NULL,
		"command line: write --port NAME:key=value,key=value (argument 1)");
	bad("--port|:mtu=3", NULL, "command line: [port] needs a name: [port 0]");
	bad("--port|0:mtu=3,mut=4", NULL,
		"command line: unknown option 'mut' in [port]: did you mean 'mtu'?");
	bad("--port|0:mtu=3,4", NULL, "command line: [port 0] mtu: '3,4' is not a whole number");
	bad("--port|0:=3", NULL,
		"command line: unknown option '' in [port]: '--help all' lists them");
}

static void
test_command_line_wins(void)
{
	struct pbox_conf *conf =
		load("--hold=9|--port=1:mtu=1600", "hold = 3\nmax-workers = 5\n"
						   "[port 0]\n[port 1]\nmtu = 1700\n"
						   "note = n\n");
	char buf[128], *argv[] = {(char *)"t", (char *)"--hold", (char *)"9"};

	CU_ASSERT_PTR_NOT_NULL_FATAL(conf);
	CU_ASSERT(t.hold == 9 && t.workers == 5 && t.n == 2);
	CU_ASSERT_STRING_EQUAL(t.ports[0].name, "1");
	CU_ASSERT_EQUAL(t.ports[0].mtu, 1600);
	CU_ASSERT_STRING_EQUAL(t.ports[0].note, "n");
	CU_ASSERT_EQUAL(pbox_conf_source(conf, &t.hold), PBOX_CONF_ARGS);
	CU_ASSERT_EQUAL(pbox_conf_source(conf, &t.workers), PBOX_CONF_FILE);
	CU_ASSERT_EQUAL(pbox_conf_source(conf, &t.check), PBOX_CONF_DEFAULT);
#define WHERE(member, want) \
	CU_ASSERT_STRING_EQUAL(pbox_conf_where(conf, member, buf, sizeof(buf)), want)
	WHERE(&t.hold, "hold = 9 (command line)");
	WHERE(&t.workers, "max-workers = 5 (f.conf line 2)");
	WHERE(&t.check, "check = no (default)");
	WHERE(&t.ports[0].mtu, "[port 1] mtu = 1600 (command line)");
	WHERE(&t.ports[0].note, "[port 1] note = n (f.conf line 6)");
	WHERE(&t.ports[0].address, "[port 1] address = (not set) (default)");
	WHERE(&t.ports[0], "[port 1] (f.conf line 4)");
	WHERE(&t.ports[1], "[port 0] (f.conf line 3)");
	pbox_conf_free(conf);
	/* the other way round */
	conf = load(NULL, "hold = 3\n");
	CU_ASSERT_EQUAL(pbox_conf_args(conf, 3, argv, NULL), 0);
	CU_ASSERT_EQUAL(t.hold, 9);
	pbox_conf_free(conf);
	/* what is overridden must be right all the same */
	bad("--hold=9", "hold = x", "f.conf line 1: hold: 'x' is not a whole number");
}

static void
test_required_options(void)
{
	struct pbox_conf *conf = load(NULL, "[port 0]\naddress = 10.0.0.1/24\n");

	CU_ASSERT_EQUAL(pbox_conf_complete(conf, &err), 0);
	pbox_conf_free(conf);
	conf = load("--port=1:mtu=3", "\n[port 0]\n");
	CU_ASSERT_EQUAL(pbox_conf_complete(conf, &err), -EINVAL);
	CU_ASSERT_STRING_EQUAL(
		err.text, "[port 1] (command line) has no 'address': add address = 10.0.0.1/24");
	pbox_conf_free(conf);
	conf = load(NULL, "\n[port 0]\n");
	CU_ASSERT_EQUAL(pbox_conf_complete(conf, &err), -EINVAL);
	CU_ASSERT_STRING_EQUAL(
		err.text, "[port 0] (f.conf line 2) has no 'address': add address = 10.0.0.1/24");
	pbox_conf_free(conf);
}

static void
test_files(void)
{
	char dir[] = P_tmpdir "/pbox-conf-XXXXXX", path[64], message[128];
	struct pbox_conf *conf = pbox_conf_new(&table, &t, NULL);
	FILE *f;

	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/f", dir);
	CU_ASSERT_EQUAL(pbox_conf_file(conf, path, &err), -ENOENT);
	snprintf(message, sizeof(message), "cannot read %s: No such file or directory", path);
	CU_ASSERT_STRING_EQUAL(err.text, message);
	CU_ASSERT_EQUAL(pbox_conf_file(conf, dir, &err), -EINVAL);
	CU_ASSERT_EQUAL(mkfifo(path, 0600), 0);
	CU_ASSERT_EQUAL(pbox_conf_file(conf, path, &err), -EINVAL); /* and does not hang */
	unlink(path);
	f = fopen(path, "w");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fputs("hold = 11\n", f);
	fclose(f);
	CU_ASSERT_EQUAL(pbox_conf_file(conf, path, &err), 0);
	CU_ASSERT_EQUAL(t.hold, 11);
	pbox_conf_free(conf);
	conf = pbox_conf_new(&table, &t, NULL);
	CU_ASSERT_EQUAL(truncate(path, PBOX_CONF_FILE_MAX + 1), 0);
	CU_ASSERT_EQUAL(pbox_conf_file(conf, path, &err), -EINVAL);
	snprintf(message, sizeof(message), "%s is larger than 1048576 bytes", path);
	CU_ASSERT_STRING_EQUAL(err.text, message);
	unlink(path);
	rmdir(dir);
	pbox_conf_free(conf);
	pbox_conf_free(NULL);
}

const struct unit_test unit_tests[] = {
	{"defaults", test_defaults},
	{"file syntax", test_file_syntax},
	{"long lines and NUL", test_long_lines_and_nul},
	{"unknown words get a suggestion", test_unknown_words_get_a_suggestion},
	{"duplicates name both places", test_duplicates_name_both_places},
	{"command line", test_command_line},
	{"sections on the command line", test_sections_on_the_command_line},
	{"the command line wins, and origins are known", test_command_line_wins},
	{"required options", test_required_options},
	{"files", test_files},
	{NULL, NULL},
};
