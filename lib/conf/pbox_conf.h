/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_CONF_H
#define PBOX_CONF_H

/**
 * @file
 * Options: one table makes the command-line parser, the file parser, --help, the sample file and
 * the options section of the man page.
 *
 * The table describes a struct of the program, the target. Precedence is command line > file >
 * default, whatever is read first; where each value came from stays known:
 *
 *     struct pbox_conf *conf = pbox_conf_new(&table, &target, &err);      sets the defaults
 *     pbox_conf_args(conf, argc, argv, &err);                             --key value
 *     pbox_conf_file(conf, target.config, &err);                          key = value
 *     pbox_conf_complete(conf, &err);                                     required ones are there
 *
 * File: `key = value`, first the global options, then `[section NAME]` with its own. A comment
 * starts with # or ; at the beginning of a line or after a space. A value in double quotes is
 * taken as it is, with \" and \\ for " and \.
 * Command line: `--key value`, `--key=value`, `-k value`; `--section NAME:key=value,key=value`,
 * where a value ends at a comma that `key=` follows (so `cores=0,2-4,queues=2` is two of them) and
 * NAME at the last colon before the first `=`.
 *
 * Nothing here prints or exits. All functions: one control thread at a time. Errors return -errno
 * (-EINVAL: what was written is wrong; -ENOMEM; what open() and read() return) and fill @p err,
 * which may be NULL; its text names file and line, the thing and the next step, and never a secret.
 */

#include <stdio.h>

#include <pbox_base.h>

/** Longest name of a section item, bytes without the NUL (that of a job, R4.3). */
#define PBOX_CONF_NAME_MAX 63
/** Longest line of a file and longest value, bytes. */
#define PBOX_CONF_LINE_MAX 1024
/** Largest file, bytes. */
#define PBOX_CONF_FILE_MAX (1024 * 1024)
/** Core numbers are below this. */
#define PBOX_CONF_CORES_MAX 1024
/** Longest secret, bytes. */
#define PBOX_CONF_SECRET_MAX 255

/** An address with the length of its network: 10.0.0.1/24. */
struct pbox_conf_prefix {
	uint8_t addr[4]; /**< in the order they are written */
	uint8_t len;     /**< 1 to 32; 0: not set */
};

/** A set of cores: 0,2-4. */
struct pbox_conf_cores {
	uint64_t bits[PBOX_CONF_CORES_MAX / 64];
};

/** A secret, given as it is or as `file:PATH` (one trailing newline does not belong to it). */
struct pbox_conf_secret {
	uint16_t len; /**< 0: not set */
	bool exposed; /**< others than its owner may read, or change, the file that it is from */
	bool plain;   /**< it is in the configuration itself: pbox_conf_exposed() */
	uint8_t bytes[PBOX_CONF_SECRET_MAX];
};

/** Is core @p core in the set? */
static inline bool
pbox_conf_core_in(const struct pbox_conf_cores *set, unsigned core)
{
	return core < PBOX_CONF_CORES_MAX && (set->bits[core / 64] >> (core % 64) & 1);
}

/** How many cores are in the set? 0 where none was given. */
unsigned pbox_conf_cores_count(const struct pbox_conf_cores *set);

/** Type of an option, and of its member in the target. */
enum pbox_conf_type {
	PBOX_CONF_BOOL,     /**< bool: yes/no, true/false, on/off, 1/0 */
	PBOX_CONF_U32,      /**< uint32_t */
	PBOX_CONF_U64,      /**< uint64_t */
	PBOX_CONF_SIZE,     /**< uint64_t bytes: 4096, 32K, 2M, 1G (powers of 1024) */
	PBOX_CONF_DURATION, /**< uint64_t ns: 250us, 20ms, 30s; a bare 0 */
	PBOX_CONF_STRING,   /**< char[] */
	PBOX_CONF_PATH,     /**< char[] */
	PBOX_CONF_ENUM,     /**< int (or an enum): one of names */
	PBOX_CONF_IPV4,     /**< uint8_t[4] in the order written */
	PBOX_CONF_PREFIX,   /**< struct pbox_conf_prefix */
	PBOX_CONF_CORES,    /**< struct pbox_conf_cores */
	PBOX_CONF_SECRET,   /**< struct pbox_conf_secret */
};

#define PBOX_CONF_REQUIRED 1u /**< pbox_conf_complete() insists on it */
#define PBOX_CONF_BASIC    2u /**< in the short --help */
#define PBOX_CONF_CLI_ONLY 4u /**< not in files: --config, --check */
#define PBOX_CONF_OPTIONAL_ARG \
	8u /**< ENUM: without one of its names after it, it means the second: --help, --help all */

#define PBOX_CONF_IN_SAMPLE 16u /**< not after a # in the sample file (required ones never are) */
#define PBOX_CONF_LIVE      32u /**< the program can take another value over while it runs */
#define PBOX_CONF_NEXT      64u /**< the same, for what begins from then on */

/** One option. All pointers live as long as the table: static const. */
struct pbox_conf_option {
	const char *name; /**< lower case, digits and dashes */
	char letter;      /**< short form -x, or 0 */
	enum pbox_conf_type type;
	unsigned flags;
	size_t offset; /**< of the member in the target or in the section's item */
	size_t size;   /**< of the member: see PBOX_CONF_AT */
	/** Range of numbers, sizes and durations (ns), both included; min of a SECRET: fewest
	 * characters of one given as it is. max 0: what the type holds. */
	uint64_t min, max;
	const char *const *names; /**< ENUM: ended by NULL */
	int first;                /**< ENUM: value of the first name; the next are one more each */
	/** Word for 0 (or for the empty set of cores): "auto", "off". NULL: none. It is allowed
	 * outside of the range as well. */
	const char *zero;
	const char *def;     /**< default as it would be written; NULL: zero bytes */
	const char *example; /**< what the sample file shows instead of the default, or NULL */
	const char *unit;    /**< plural, for numbers: "packets"; NULL: none */
	const char *brief;   /**< one line of at most 50 characters, no full stop */
	const char *more;    /**< sentences for sample, man page and --help all, or NULL */
};

/** Offset and size of a member: `{.name = "mtu", PBOX_CONF_AT(struct port, mtu), ...}`. */
#define PBOX_CONF_AT(type_, member_) \
	.offset = offsetof(type_, member_), .size = sizeof(((type_ *)NULL)->member_)
/** A row of a table: an option of @p kind_ (BOOL, U32, ...) in a member of @p target_, then what else it has, by name. */
#define PBOX_CONF_ROW(target_, kind_, name_, member_, ...)                                  \
	{                                                                                   \
		.name = (name_), .type = PBOX_CONF_##kind_, PBOX_CONF_AT(target_, member_), \
		__VA_ARGS__                                                                 \
	}

/** A section. An item struct begins with `char name[PBOX_CONF_NAME_MAX + 1]`. */
struct pbox_conf_section {
	const char *name; /**< "port" for [port NAME]; "" for the global options, which are first */
	const char *brief; /**< one line */
	const char *more;  /**< sentences, or NULL */
	const struct pbox_conf_option *options;
	unsigned n_options;
	/* from here on not for the global ones */
	size_t items_at; /**< offset of the array of items in the target */
	size_t item_size;
	size_t count_at;         /**< offset of the number of items, an unsigned */
	unsigned max;            /**< length of the array */
	const char *sample_name; /**< NAME in the sample file */
	bool spare; /**< few need it: after a # in the sample file, and not in the short --help */
	/** Is @p name allowed? 0, or fills @p err with what a name looks like. NULL: any name. */
	int (*check_name)(const char *name, struct pbox_error *err);
};

struct pbox_conf_table {
	const char *program;                      /**< "pbox" */
	const char *usage;                        /**< line after "Usage: " */
	const char *summary;                      /**< one line */
	const char *see;                          /**< last line of --help */
	const struct pbox_conf_section *sections; /**< [0] holds the global options */
	unsigned n_sections;
};

/** What has been read, and from where. */
struct pbox_conf;

/** Set the defaults in @p target (all of it: counts become 0). The table and the target must
 * outlive the result. All memory is taken here; NULL and @p err without it. A malformed table is
 * a broken invariant. */
struct pbox_conf *pbox_conf_new(
	const struct pbox_conf_table *table, void *target, struct pbox_error *err);
/** Leaves the target alone: it stays good. NULL is allowed. */
void pbox_conf_free(struct pbox_conf *conf);

/** Read the command line; argv[0] is skipped. The strings are not kept. Once per conf. */
int pbox_conf_args(struct pbox_conf *conf, int argc, char *const argv[], struct pbox_error *err);
/** Read a file. Once per conf, file or text. -ENOENT (and err) if it is not there. After an error
 * the target holds what came before the wrong line. */
int pbox_conf_file(struct pbox_conf *conf, const char *path, struct pbox_error *err);
/** Read @p len bytes of a file's text; @p name is the file's name in messages. */
int pbox_conf_text(struct pbox_conf *conf, const char *name, const char *text, size_t len,
	struct pbox_error *err);
/** Check that all required options were given. */
int pbox_conf_complete(const struct pbox_conf *conf, struct pbox_error *err);

enum pbox_conf_source { PBOX_CONF_DEFAULT, PBOX_CONF_FILE, PBOX_CONF_ARGS };

/** Where the value of @p member (its address in the target) comes from. */
enum pbox_conf_source pbox_conf_source(const struct pbox_conf *conf, const void *member);
/** Others than its owner may read, or change, the file that was read. */
bool pbox_conf_exposed(const struct pbox_conf *conf);
/**
 * Describe @p member (its address in the target) for a message: "[port 0] mtu = 9000 (pbox.conf
 * line 12)", "hold = 4096 (default)", "lease = 5s (command line)"; for the address of a section's
 * item "[port 0] (pbox.conf line 10)". Secrets show as "(set)".
 * Returns @p buf, cut to @p size; 256 bytes are plenty.
 */
const char *pbox_conf_where(
	const struct pbox_conf *conf, const void *member, char *buf, size_t size);

enum pbox_conf_change { PBOX_CONF_CHANGED, PBOX_CONF_NEW, PBOX_CONF_GONE };
/**
 * Compare what two files (or runs) said of the same table: calls @p report for each option of global
 * ones and of items in both whose value differs, with what is there @p now as pbox_conf_where() says
 * it, and for each item that only one of them has (@p option NULL). Items are the same by their
 * name.
 */
void pbox_conf_differ(const struct pbox_conf *old, const struct pbox_conf *now,
	void (*report)(void *ctx, enum pbox_conf_change what,
		const struct pbox_conf_section *section, const struct pbox_conf_option *option,
		const char *text),
	void *ctx);

/** Write all values with their origins, in the syntax of the file (secrets as comments). */
void pbox_conf_dump(const struct pbox_conf *conf, FILE *to);
/** Write --help: the basic options on a screen of 80 x 24, or all of them. */
void pbox_conf_help(const struct pbox_conf_table *table, bool all, FILE *to);
/** Write the commented sample file. */
void pbox_conf_sample(const struct pbox_conf_table *table, FILE *to);
/** Write the options as man(7) text: one .SH, with .SS per section. */
void pbox_conf_man(const struct pbox_conf_table *table, FILE *to);

#endif /* PBOX_CONF_H */
