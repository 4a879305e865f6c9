/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Allocations of a thread, counted: these come before the C library's, for shared libraries too.
 * EAL's own heap is asked as well (run.c). */

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench.h"

static __thread uint64_t calls __attribute__((tls_model("initial-exec")));

uint64_t
alloc_count(void)
{
	return calls;
}

#ifdef BENCH_COUNT_ALLOC
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

void *
malloc(size_t n)
{
	calls++;
	return __libc_malloc(n);
}

void *
calloc(size_t n, size_t size)
{
	calls++;
	return __libc_calloc(n, size);
}

void *
realloc(void *p, size_t n)
{
	calls++;
	return __libc_realloc(p, n);
}

void *
aligned_alloc(size_t align, size_t n)
{
	calls++;
	return __libc_memalign(align, n);
}

int
posix_memalign(void **p, size_t align, size_t n)
{
	calls++;
	*p = __libc_memalign(align, n);
	return *p != NULL ? 0 : ENOMEM;
}

void *
mmap(void *addr, size_t n, int prot, int flags, int fd, off_t at)
{
	calls++;
	return (void *)syscall(SYS_mmap, addr, n, prot, flags, fd, at);
}
#endif
