/* SPDX-License-Identifier: MIT */
/* Owners of parts of a drive, for the NAND bytes of each. Other bytes belong to owner 0. */
#ifndef OPWATCH_DRIVE_OWNERS_H
#define OPWATCH_DRIVE_OWNERS_H

#include <stdint.h>

#define OW_MAX_PARTS	   16
#define OW_MAX_OWNER_BYTES 33

/* A part of the drive, and its owner's name. */
struct ow_part {
	char name[OW_MAX_OWNER_BYTES];
	uint64_t begin;
	uint64_t end;
};

struct ow_parts {
	uint32_t count;
	struct ow_part of[OW_MAX_PARTS]; /* of owner 1, 2, ... */
};

/* Add a part from NAME:BEGIN:END in bytes. Returns 0 or -errno. */
int ow_parts_add(struct ow_parts *parts, const char *text);
/*
 * Return the owner of the byte at @offset. Reduces *@len to the bytes from there that have the same
 * owner.
 */
uint8_t ow_parts_find(const struct ow_parts *parts, uint64_t offset, uint64_t *len);

#endif
