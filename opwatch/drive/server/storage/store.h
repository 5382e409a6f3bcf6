/* SPDX-License-Identifier: MIT */
/* The contents of a drive in sparse memory. Unwritten and punched ranges take no memory. */
#ifndef OPWATCH_DRIVE_STORE_H
#define OPWATCH_DRIVE_STORE_H

#include <stddef.h>
#include <stdint.h>

struct ow_store {
	uint8_t *memory; /* NULL: contents are not stored */
	uint64_t bytes;
};

/* The longest read that ow_store_read() supports. */
#define OW_STORE_READ_MAX (1 << 20)

int ow_store_open(struct ow_store *store, uint64_t bytes, int keep);
void ow_store_close(struct ow_store *store);
void ow_store_write(struct ow_store *store, uint64_t offset, const void *data, size_t len);
/* Return the address of the contents, valid until the store is closed. */
const void *ow_store_read(const struct ow_store *store, uint64_t offset);
int ow_store_punch(struct ow_store *store, uint64_t offset, uint64_t len);

#endif
