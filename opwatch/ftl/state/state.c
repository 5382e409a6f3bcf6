// SPDX-License-Identifier: MIT
/* Save and load a drive. The stream ends with a checksum over all preceding bytes. */
#include "ftl/core/map.h"
#include "state.h"

#include <errno.h>

/* Only reads @ftl. The parameter is not const because loading shares the same functions. */
static int save_all(struct ow_stream *stream, struct ow_ftl *ftl)
{
	uint64_t magic = OW_STATE_MAGIC, sum;
	uint32_t version = ftl->owners.tags ? OW_STATE_VERSION_OWNERS : OW_STATE_VERSION;
	int ret = ow_stream_move(stream, &magic, sizeof(magic));

	if (!ret)
		ret = ow_stream_move(stream, &version, sizeof(version));
	if (!ret)
		ret = ow_state_move_config(stream, &ftl->config);
	if (!ret)
		ret = ow_state_move_numbers(stream, ftl);
	if (!ret)
		ret = ow_state_move_arrays(stream, ftl);
	if (!ret && ftl->owners.tags)
		ret = ow_state_move_owners(stream, ftl);
	sum = stream->sum;
	return ret ? ret : ow_stream_move(stream, &sum, sizeof(sum));
}

int ow_ftl_save(const struct ow_ftl *ftl, ow_ftl_put_fn put, void *ctx)
{
	struct ow_stream stream = {.put = put, .ctx = ctx};

	return save_all(&stream, (struct ow_ftl *)(uintptr_t)ftl);
}

static int load_header(struct ow_stream *stream, struct ow_ftl_config *config, uint32_t *version)
{
	uint64_t magic = 0;
	const char *why;
	int ret = ow_stream_move(stream, &magic, sizeof(magic));

	if (!ret)
		ret = ow_stream_move(stream, version, sizeof(*version));
	if (ret)
		return ret;
	if (magic != OW_STATE_MAGIC)
		return -EBADMSG;
	if (*version != OW_STATE_VERSION && *version != OW_STATE_VERSION_OWNERS)
		return -EPROTONOSUPPORT;
	ret = ow_state_move_config(stream, config);
	if (!ret && ow_ftl_config_check(config, &why))
		ret = -EBADMSG;
	return ret;
}

static int load_rest(struct ow_stream *stream, struct ow_ftl *ftl, uint32_t version)
{
	uint64_t want, sum = 0;
	const char *why;
	int ret = ow_state_move_numbers(stream, ftl);

	if (!ret)
		ret = ow_state_move_arrays(stream, ftl);
	if (!ret && version == OW_STATE_VERSION_OWNERS)
		ret = ow_owners_alloc(ftl);
	if (!ret && version == OW_STATE_VERSION_OWNERS)
		ret = ow_state_move_owners(stream, ftl);
	want = stream->sum;
	if (!ret)
		ret = ow_stream_move(stream, &sum, sizeof(sum));
	if (ret)
		return ret;
	if (sum != want || ow_state_rebuild(ftl) || ow_ftl_check(ftl, &why))
		return -EBADMSG;
	return 0;
}

int ow_ftl_peek(struct ow_ftl_config *config, ow_ftl_get_fn get, void *ctx)
{
	struct ow_stream stream = {.get = get, .ctx = ctx};
	uint32_t version = 0;

	*config = (struct ow_ftl_config){0};
	return load_header(&stream, config, &version);
}

int ow_ftl_load(struct ow_ftl **out, ow_ftl_get_fn get, void *ctx)
{
	struct ow_stream stream = {.get = get, .ctx = ctx};
	struct ow_ftl_config config = {0};
	struct ow_ftl *ftl;
	uint32_t version = 0;
	int ret = load_header(&stream, &config, &version);

	if (!ret)
		ret = ow_drive_alloc(&ftl, &config);
	if (ret)
		return ret;
	ret = load_rest(&stream, ftl, version);
	if (ret) {
		ow_ftl_destroy(ftl);
		return ret;
	}
	*out = ftl;
	return 0;
}
