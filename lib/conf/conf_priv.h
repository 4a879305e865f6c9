/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef CONF_PRIV_H
#define CONF_PRIV_H

#include "pbox_conf.h"

/* Line of the file and argument of the command line that set a value (or opened an item); 0: not
 * set there. Both are kept: a value of the file that the command line overrides is still checked
 * for duplicates. */
struct conf_origin {
	uint32_t line, arg;
};

struct pbox_conf {
	const struct pbox_conf_table *table;
	char *target;
	char file[256]; /* as given, "" before */
	bool exposed;   /* others than its owner may read, or change, it */
	/* items: one per section item; values: one per option of each item */
	struct conf_origin *items, *values;
};

/* Who speaks: a line of the file or an argument. */
struct conf_place {
	unsigned line, arg;
};

/* A section's item, or the global options (section 0, item 0). */
struct conf_item {
	unsigned section, item;
};

#define CONF_PLACE_MAX (256 + 32)

/* value.c */

/* " as user pbox" where a file is there and may not be opened, else "". */
const char *conf_as_user(int error, char *buf, size_t size);

/* Parse text into the member; 0, or -EINVAL with what is wrong with it in why. Never a secret. */
int conf_parse(
	const struct pbox_conf_option *o, const char *text, void *member, char *why, size_t size);
/* Write a value as one could write it in a file; "(set)" for secrets, "" where nothing is set. */
void conf_format(const struct pbox_conf_option *o, const void *member, char *buf, size_t size);
/* "1500 to 65000 bytes or auto", "poll, yield or sleep"; "" where there is nothing to say. */
void conf_format_range(const struct pbox_conf_option *o, char *buf, size_t size);
/* Bytes that a member of this type has; 0: any number */
size_t conf_type_size(enum pbox_conf_type type);

/* set.c */

const char *conf_place(
	const struct pbox_conf *conf, struct conf_place at, char buf[CONF_PLACE_MAX]);
char *conf_base(const struct pbox_conf *conf, struct conf_item it);
unsigned conf_count(const struct pbox_conf *conf, unsigned section);
struct conf_origin *conf_item_origin(const struct pbox_conf *conf, struct conf_item it);
struct conf_origin *conf_value_origin(
	const struct pbox_conf *conf, struct conf_item it, unsigned option);
/* Find or make the item [section name]. */
int conf_open_item(struct pbox_conf *conf, struct conf_place at, unsigned section, const char *name,
	struct conf_item *it, struct pbox_error *err);
/* Index of an option, or -EINVAL with a suggestion. */
int conf_find_option(struct pbox_conf *conf, struct conf_place at, unsigned section,
	const char *key, struct pbox_error *err);
int conf_set(struct pbox_conf *conf, struct conf_place at, struct conf_item it, unsigned option,
	const char *text, struct pbox_error *err);

/* suggest.c */

struct conf_nearest {
	const char *word; /* what was written */
	const char *best; /* NULL: nothing is near */
	unsigned distance;
};
/* Offer a candidate. */
void conf_nearer(struct conf_nearest *n, const char *candidate);

#endif /* CONF_PRIV_H */
