// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Not const: it need not be in the program's file. */
static uint8_t zeroes[OW_STORE_READ_MAX];

int ow_store_open(struct ow_store *store, uint64_t bytes, int keep)
{
	*store = (struct ow_store){.bytes = bytes, .fd = -1};
	if (!keep)
		return 0;
	store->fd = memfd_create("opwatch-drive", MFD_CLOEXEC);
	if (store->fd < 0 || ftruncate(store->fd, bytes))
		return -errno;
	store->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, store->fd, 0);
	if (store->memory == MAP_FAILED) {
		store->memory = NULL;
		return -errno;
	}
	return 0;
}

void ow_store_close(struct ow_store *store)
{
	if (store->memory)
		munmap(store->memory, store->bytes);
	if (store->fd >= 0)
		close(store->fd);
	*store = (struct ow_store){.fd = -1};
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

int ow_store_punch(struct ow_store *store, uint64_t offset, uint64_t len)
{
	if (!store->memory || !len)
		return 0;
	if (fallocate(store->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, len))
		return -errno;
	return 0;
}

uint64_t ow_store_used(const struct ow_store *store)
{
	struct stat status;

	if (!store->memory || fstat(store->fd, &status))
		return 0;
	return status.st_blocks * 512ULL;
}

int ow_store_next(const struct ow_store *store, uint64_t offset, uint64_t *start, uint64_t *end)
{
	off_t at;

	if (!store->memory || offset >= store->bytes)
		return 0;
	at = lseek(store->fd, offset, SEEK_DATA);
	if (at < 0)
		return errno == ENXIO ? 0 : -errno;
	*start = at;
	at = lseek(store->fd, at, SEEK_HOLE);
	if (at < 0)
		return -errno;
	*end = at;
	return 1;
}
