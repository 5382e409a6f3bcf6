/* SPDX-License-Identifier: MIT */
/* Helpers of the C tests: a check that reports its location, and a buffer for saved drives. */
#ifndef OPWATCH_TEST_CHECK_H
#define OPWATCH_TEST_CHECK_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                 \
	do {                                                                             \
		if (!(condition)) {                                                      \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, __func__, \
				#condition);                                             \
			abort();                                                         \
		}                                                                        \
	} while (0)

struct memory {
	unsigned char *data;
	size_t len;
	size_t size;
	size_t at; /* bytes read so far */
};

static inline int memory_put(void *ctx, const void *data, size_t len)
{
	struct memory *memory = ctx;

	if (memory->len + len > memory->size) {
		memory->size = 2 * (memory->len + len);
		memory->data = realloc(memory->data, memory->size);
		CHECK(memory->data);
	}
	memcpy(memory->data + memory->len, data, len);
	memory->len += len;
	return 0;
}

static inline int memory_get(void *ctx, void *data, size_t len)
{
	struct memory *memory = ctx;

	if (memory->len - memory->at < len)
		return -ENODATA;
	memcpy(data, memory->data + memory->at, len);
	memory->at += len;
	return 0;
}

static inline void memory_to_file(const struct memory *memory, const char *path)
{
	FILE *file = fopen(path, "w");

	CHECK(file && fwrite(memory->data, 1, memory->len, file) == memory->len);
	CHECK(!fclose(file));
}

static inline void memory_from_file(struct memory *memory, const char *path)
{
	FILE *file = fopen(path, "r");
	unsigned char part[1 << 16];
	size_t n;

	CHECK(file);
	memory->len = memory->at = 0;
	while ((n = fread(part, 1, sizeof(part), file)))
		memory_put(memory, part, n);
	CHECK(!ferror(file) && !fclose(file));
}

#endif
