// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "store.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Not const, so that the array is in .bss and takes no space in the program file. */
static uint8_t zeroes[OW_STORE_READ_MAX];

/*
 * Private memory, because reading a hole of a shared mapping allocates a page. No huge pages,
 * because one small write would take a whole huge page.
 */
int ow_store_open(struct ow_store *store, uint64_t bytes, int keep)
{
	void *memory;

	*store = (struct ow_store){.bytes = bytes};
	if (!keep)
		return 0;
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return -errno;
	madvise(memory, bytes, MADV_NOHUGEPAGE);
	store->memory = memory;
	return 0;
}

void ow_store_close(struct ow_store *store)
{
	if (store->memory)
		munmap(store->memory, store->bytes);
	store->memory = NULL;
}

void ow_store_write(struct ow_store *store, uint64_t offset, const void *data, size_t len)
{
	if (store->memory)
		memcpy(store->memory + offset, data, len);
}

const void *ow_store_read(const struct ow_store *store, uint64_t offset)
{
	return store->memory ? store->memory + offset : zeroes;
}

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

/* Before Linux 5.18 (9457056ac426), locked memory must be unlocked first. */
static int release_pages(void *memory, size_t len)
{
	if (!madvise(memory, len, MADV_DONTNEED_LOCKED) || !madvise(memory, len, MADV_DONTNEED))
		return 0;
	if (errno != EINVAL || munlock(memory, len) || madvise(memory, len, MADV_DONTNEED))
		return -errno;
	return mlock2(memory, len, MLOCK_ONFAULT) ? -errno : 0;
}

/* Whole pages are returned to the system; partial pages are overwritten with zeroes. */
int ow_store_punch(struct ow_store *store, uint64_t offset, uint64_t len)
{
	uint64_t mask = sysconf(_SC_PAGESIZE) - 1, end = offset + len;
	uint64_t first = (offset + mask) & ~mask, last = end & ~mask;

	if (!store->memory || !len)
		return 0;
	if (first >= last) {
		memset(store->memory + offset, 0, len);
		return 0;
	}
	memset(store->memory + offset, 0, first - offset);
	memset(store->memory + last, 0, end - last);
	return release_pages(store->memory + first, last - first);
}
