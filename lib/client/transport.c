/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>

#include "client_impl.h"

/* Transports by name: built in, registered, or loaded. */

#define MAX_TRANSPORTS 8
#define MAX_NAME       32

static pthread_mutex_t transport_lock = PTHREAD_MUTEX_INITIALIZER;
static const struct pbox_client_transport_ops *transport_known[MAX_TRANSPORTS] = {&transport_udp};
static unsigned transport_count = 1;

/** A name is part of a file's name and of a symbol's. */
static bool
name_ok(const char *name)
{
	size_t len = name != NULL ? strnlen(name, MAX_NAME) : 0;

	for (size_t i = 0; i < len; i++)
		if (!islower((unsigned char)name[i]) && !isdigit((unsigned char)name[i]) &&
			name[i] != '_')
			return false;
	return len > 0 && len < MAX_NAME;
}

static const struct pbox_client_transport_ops *
transport_named(const char *name)
{
	const struct pbox_client_transport_ops *found = NULL;

	pthread_mutex_lock(&transport_lock);
	for (unsigned i = 0; i < transport_count; i++)
		if (strcmp(transport_known[i]->name, name) == 0)
			found = transport_known[i];
	pthread_mutex_unlock(&transport_lock);
	return found;
}

int
pbox_client_transport_register(
	const struct pbox_client_transport_ops *ops, struct pbox_client_error *err)
{
	int rc = 0;

	if (ops == NULL || ops->abi != PBOX_CLIENT_TRANSPORT_ABI)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"a transport speaks interface %u, this library %u: install them from one release",
			ops != NULL ? ops->abi : 0, PBOX_CLIENT_TRANSPORT_ABI);
	if (!name_ok(ops->name))
		return pbox_client_fail(err, PBOX_C_INVALID,
			"a transport's name must be 1 to %d of a-z, 0-9 and _", MAX_NAME - 1);
	pthread_mutex_lock(&transport_lock);
	for (unsigned i = 0; i < transport_count; i++)
		if (strcmp(transport_known[i]->name, ops->name) == 0) {
			if (transport_known[i] != ops)
				rc = pbox_client_fail(err, PBOX_C_INVALID,
					"there is another transport '%s' already", ops->name);
			goto out;
		}
	if (transport_count == MAX_TRANSPORTS)
		rc = pbox_client_fail(
			err, PBOX_C_MEMORY, "%d transports are registered", MAX_TRANSPORTS);
	else
		transport_known[transport_count++] = ops;
out:
	pthread_mutex_unlock(&transport_lock);
	return rc;
}

/** Load the library that has the back end. It stays loaded, as its ops are registered. */
static int
transport_load(const char *name, struct pbox_client_error *err)
{
	char file[MAX_NAME + 32], symbol[MAX_NAME + 32];
	const struct pbox_client_transport_ops *ops;
	void *lib;
	int rc;

	snprintf(file, sizeof(file), "libpbox-client-%s.so.1", name);
	snprintf(symbol, sizeof(symbol), "pbox_client_transport_%s", name);
	lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (lib == NULL)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"transport '%s' is not built in, and its library cannot be loaded: %.300s; install it, or leave transport empty for kernel sockets",
			name, dlerror());
	ops = dlsym(lib, symbol);
	if (ops == NULL)
		rc = pbox_client_fail(err, PBOX_C_INVALID, "%s has no symbol %s", file, symbol);
	else if (ops->abi == PBOX_CLIENT_TRANSPORT_ABI && strcmp(ops->name, name) != 0)
		rc = pbox_client_fail(
			err, PBOX_C_INVALID, "%s has a transport of another name", file);
	else
		rc = pbox_client_transport_register(ops, err);
	if (rc != 0)
		dlclose(lib);
	return rc;
}

const struct pbox_client_transport_ops *
transport_find(const char *name, struct pbox_client_error *err)
{
	const struct pbox_client_transport_ops *ops;

	if (name == NULL || name[0] == 0)
		return &transport_udp;
	if (!name_ok(name)) {
		pbox_client_fail(err, PBOX_C_INVALID,
			"transport '%.40s' is not a name: 1 to %d of a-z, 0-9 and _", name,
			MAX_NAME - 1);
		return NULL;
	}
	ops = transport_named(name);
	if (ops == NULL && transport_load(name, err) == 0)
		ops = transport_named(name);
	return ops;
}
