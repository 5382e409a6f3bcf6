// SPDX-License-Identifier: MIT
/* How large the maps are, and where a disk lies in the table: arithmetic, nothing is loaded. */
#include "tracer_internal.h"

#include <string.h>

__u64 ow_find_multiplier(const struct ow_disk_key *disks, __u32 n)
{
	__u64 multiplier = 0x9e3779b97f4a7c15ULL;
	__u8 taken[OW_TABLE_SIZE];
	__u32 i, index;
	int attempt;

	for (attempt = 0; attempt < 100000; attempt++) {
		memset(taken, 0, sizeof(taken));
		for (i = 0; i < n; i++) {
			index = ow_table_index(disks[i].a, disks[i].b, multiplier);
			if (taken[index]++)
				break;
		}
		if (i == n)
			return multiplier;
		multiplier = multiplier * 6364136223846793005ULL + 1442695040888963407ULL;
		multiplier |= 1;
	}
	return 0;
}

struct map_sizes ow_map_sizes(const struct ow_tracer_config *config, __u32 nr_cpus)
{
	__u32 lanes = config->nr_targets * ow_lanes_per_target(nr_cpus);
	__u32 stamps = config->nr_stamps ? config->nr_stamps : 1;

	return (struct map_sizes){
		.rows = config->nr_targets * nr_cpus,
		.lanes = lanes,
		.queue_lanes = config->queue_time ? lanes : 1,
		.statuses = config->nr_targets * OW_NR_OPS,
		.stamps = stamps,
		.queue_stamps = config->queue_time ? stamps : 1,
		.bios = config->nr_bios ? config->nr_bios : 1,
	};
}

__u64 ow_tracer_map_bytes(const struct ow_tracer_config *config)
{
	struct map_sizes n = ow_map_sizes(config, config->nr_cpus);

	return n.rows * sizeof(struct ow_row) + n.lanes * sizeof(struct ow_latency) +
	       n.queue_lanes * sizeof(struct ow_latency) + n.lanes * sizeof(struct ow_sizes) +
	       n.statuses * sizeof(__u64[OW_NR_STATUS]) +
	       (__u64)(n.stamps + n.queue_stamps) * sizeof(struct ow_stamp) +
	       OW_TABLE_SIZE * sizeof(struct ow_disk_key) +
	       OW_MAX_TARGETS * sizeof(struct ow_target);
}
