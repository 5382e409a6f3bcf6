/* SPDX-License-Identifier: MIT */
/*
 * The parts of a saved drive other than the FTL: a header with its checksum, the FTL, then one
 * record before each range of contents, and a final record.
 */
#ifndef OPWATCH_DRIVE_SAVED_H
#define OPWATCH_DRIVE_SAVED_H

#include <stdint.h>

#define OW_SAVED_MAGIC	     "opwdrive"
#define OW_SAVED_VERSION     1
#define OW_SAVED_NO_DATA     1U
#define OW_SAVED_TRIM_KEEPS  2U
#define OW_SAVED_HAS_ZEROED  4U /* without contents: the ranges are mapped but read as zeroes */
#define OW_SAVED_END	     UINT64_MAX
#define OW_SAVED_CHUNK_BYTES (1ULL << 20)

struct ow_saved_header {
	char magic[8];
	uint32_t version;
	uint32_t flags;
	uint64_t unaligned_writes;
	uint64_t power_on_s;
	char serial[24];
};

/* The record before each range of contents. */
struct ow_saved_run {
	uint64_t offset;
	uint64_t len;
	uint64_t sum; /* of the range and its offset; in the final record, of all sums */
};

#endif
