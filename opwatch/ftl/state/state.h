/* SPDX-License-Identifier: MIT */
/* What a saved drive is made of: the same walk writes it and reads it. */
#ifndef OPWATCH_FTL_STATE_H
#define OPWATCH_FTL_STATE_H

#include "ftl/core/core.h"
#include "stream.h"

#define OW_STATE_MAGIC	 0x314c54465f574f00ULL
#define OW_STATE_VERSION 2

/* Numbers of the drive that no array holds; the configuration apart, as it must come first. */
int ow_state_move_config(struct ow_stream *stream, struct ow_ftl_config *config, uint32_t version);
int ow_state_move_numbers(struct ow_stream *stream, struct ow_ftl *ftl);
int ow_state_move_arrays(struct ow_stream *stream, struct ow_ftl *ftl);
/* Rebuild what is not saved, after proving that no number leads out of its table. */
int ow_state_rebuild(struct ow_ftl *ftl);

#endif
