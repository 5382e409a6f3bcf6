/* SPDX-License-Identifier: MIT */
/* The layout of a saved drive. The same functions write and read. */
#ifndef OPWATCH_FTL_STATE_H
#define OPWATCH_FTL_STATE_H

#include "ftl/core/core.h"
#include "stream.h"

#define OW_STATE_MAGIC	 0x314c54465f574f00ULL
#define OW_STATE_VERSION 1
/* A drive with owners of pages, which follow the arrays. */
#define OW_STATE_VERSION_OWNERS 2

/* The configuration comes first in the stream, then single values, then arrays. */
int ow_state_move_config(struct ow_stream *stream, struct ow_ftl_config *config);
int ow_state_move_numbers(struct ow_stream *stream, struct ow_ftl *ftl);
int ow_state_move_arrays(struct ow_stream *stream, struct ow_ftl *ftl);
int ow_state_move_owners(struct ow_stream *stream, struct ow_ftl *ftl);
/* Validate the loaded values, then rebuild the tables that are not saved. */
int ow_state_rebuild(struct ow_ftl *ftl);

#endif
