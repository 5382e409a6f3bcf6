// SPDX-License-Identifier: MIT
/* A drive's configuration: defaults and validation. */
#include "core.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* More choices give the same result as greedy collection and take more time. */
#define MAX_CHOICES 1024

void ow_ftl_config_init(struct ow_ftl_config *config)
{
	memset(config, 0, sizeof(*config));
	config->iu_bytes = 4096;
	config->streams = 1;
	config->gc_frontier = OW_FTL_GC_COMMON;
	config->dies = 16;
	config->write_zeroes_unmaps = true;
	config->slc_bits = 3;
	config->seed = 1;
}

/* About 4096 superblocks, so that one superblock is a small part of any spare. */
static uint64_t choose_superblock_bytes(const struct ow_ftl_config *config)
{
	uint64_t bytes = 64ULL * config->iu_bytes, limit = 16384ULL * config->iu_bytes;

	while (bytes < limit && bytes * 4096 < config->physical_bytes)
		bytes *= 2;
	return bytes;
}

static bool is_power_of_two(uint64_t n)
{
	return n && !(n & (n - 1));
}

static const char *check_sizes(const struct ow_ftl_config *config)
{
	uint64_t pages = config->superblock_bytes / config->iu_bytes;
	uint64_t total =
		config->physical_bytes / config->iu_bytes + config->slc_bytes / config->iu_bytes;

	if (!is_power_of_two(config->superblock_bytes) || pages < 64 || pages > OW_VALID_MASK)
		return "a superblock must be a power of two of at least 64 mapping units";
	if (!config->user_bytes || config->user_bytes % config->iu_bytes)
		return "the user size must be a multiple of the mapping unit, above 0";
	if (config->physical_bytes % config->iu_bytes)
		return "the physical size must be a multiple of the mapping unit";
	if (total / pages + config->reserve_superblocks + 4 >= (1ULL << 32) / pages)
		return "too many mapping units for a 32-bit map: use a larger mapping unit";
	return NULL;
}

static const char *check_choices(const struct ow_ftl_config *config)
{
	if (config->policy > OW_FTL_COST_BENEFIT || config->gc_frontier > OW_FTL_GC_PER_STREAM ||
	    config->trim_mode > OW_FTL_TRIM_IGNORE || config->slc_full > OW_FTL_SLC_FOLD ||
	    config->tie > OW_FTL_TIE_OLDEST)
		return "unknown policy, tie, frontier, trim or cache mode";
	if (!config->streams || config->streams > OW_FTL_MAX_STREAMS)
		return "streams must be 1 to 16";
	if (config->hot_cold &&
	    (config->streams != 2 || config->gc_frontier != OW_FTL_GC_PER_STREAM))
		return "hot/cold sorting needs exactly 2 streams, each with its own collection "
		       "frontier";
	if ((config->policy == OW_FTL_D_CHOICES || config->policy == OW_FTL_WINDOWED) &&
	    !config->policy_arg)
		return "this policy needs its argument: d, or the window in superblocks";
	if (config->policy == OW_FTL_D_CHOICES && config->policy_arg > MAX_CHOICES)
		return "more than 1024 choices: use greedy collection";
	if (!config->dies || config->slc_bits < 1 || config->slc_bits > 8)
		return "dies must be above 0, bits per cell 1 to 8";
	if (config->buffer_bytes / config->iu_bytes > 1U << 28)
		return "the write buffer is too large";
	return NULL;
}

/* Report the minimum in hundredths of a percent of the user size, rounded up. */
static const char *format_spare_error(const struct ow_ftl_config *config, uint64_t min_superblocks)
{
	static const char *const units[] = {"MiB", "GiB", "TiB"};
	static _Thread_local char text[200];
	double size = config->user_bytes / 1048576.0;
	uint32_t unit = 0;
	ow_u128 bytes = (ow_u128)min_superblocks * config->superblock_bytes;
	uint64_t hundredths = (bytes * 10000 + config->user_bytes - 1) / config->user_bytes;

	for (; size >= 1024 && unit < 2; unit++)
		size /= 1024;
	snprintf(text, sizeof(text),
		 "too little spare: a drive of %.1f %s needs an OP of at least %llu.%02llu%%", size,
		 units[unit], (unsigned long long)hundredths / 100,
		 (unsigned long long)hundredths % 100);
	return text;
}

static const char *check_spare(const struct ow_ftl_config *config)
{
	uint64_t min_superblocks = config->gc_low_superblocks;
	uint64_t spare = config->physical_bytes - config->user_bytes;

	min_superblocks += ow_frontier_count(config) + 1;
	if (config->reserve_superblocks < ow_frontier_count(config) + 1)
		return "the reserve must hold every frontier plus one superblock";
	/* Divide one side instead of multiplying, because the product may exceed 64 bits. */
	if (config->physical_bytes < config->user_bytes ||
	    spare / config->superblock_bytes < min_superblocks)
		return format_spare_error(config, min_superblocks);
	return NULL;
}

int ow_ftl_config_check(struct ow_ftl_config *config, const char **why)
{
	if (!is_power_of_two(config->iu_bytes) || config->iu_bytes < 4096 ||
	    config->iu_bytes > 65536) {
		*why = "the mapping unit must be a power of two from 4096 to 65536 bytes";
		return -EINVAL;
	}
	if (!config->superblock_bytes)
		config->superblock_bytes = choose_superblock_bytes(config);
	*why = check_choices(config);
	if (!*why && !config->reserve_superblocks)
		config->reserve_superblocks = ow_frontier_count(config) + 1;
	if (!*why)
		*why = check_sizes(config);
	if (!*why)
		*why = check_spare(config);
	return *why ? -EINVAL : 0;
}

void ow_ftl_get_config(const struct ow_ftl *ftl, struct ow_ftl_config *config)
{
	*config = ftl->config;
}
