/* SPDX-License-Identifier: MIT */
/* The byte stream of a saved drive, in either direction, with its checksum. */
#ifndef OPWATCH_FTL_STREAM_H
#define OPWATCH_FTL_STREAM_H

#include "ftl/core/ftl.h"

/* Either @put or @get is set. @sum covers every byte moved. */
struct ow_stream {
	ow_ftl_put_fn put;
	ow_ftl_get_fn get;
	void *ctx;
	uint64_t sum;
};

int ow_stream_move(struct ow_stream *stream, void *data, size_t len);

#endif
