// SPDX-License-Identifier: MIT
/* Computes the sizes of the maps and the hash of the disk table. Loads nothing. */
#include "layout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__u64 ow_find_multiplier(const struct ow_disk_key *disks, __u32 n)
{
	__u64 multiplier = 0x9e3779b97f4a7c15ULL;
	__u8 used[OW_TABLE_SIZE];
	__u32 i, index;
	int attempt;

	for (attempt = 0; attempt < 100000; attempt++) {
		memset(used, 0, sizeof(used));
		for (i = 0; i < n; i++) {
			index = ow_table_index(disks[i].a, disks[i].b, multiplier);
			if (used[index]++)
				break;
		}
		if (i == n)
			return multiplier;
		multiplier = multiplier * 6364136223846793005ULL + 1442695040888963407ULL;
		multiplier |= 1;
	}
	return 0;
}

__u32 ow_parse_cpu_list(const char *list)
{
	unsigned long number, highest = 0;
	char *end;

	while (*list && *list != '\n') {
		number = strtoul(list, &end, 10);
		if (end == list || number >= OW_MAX_CPUS)
			return 0;
		highest = number >= highest ? number + 1 : highest;
		list = *end == '-' || *end == ',' ? end + 1 : end;
	}
	return highest;
}

/* libbpf_num_possible_cpus() returns their count, but on some machines CPU numbers have gaps. */
int ow_count_possible_cpus(void)
{
	char list[4096] = {};
	int fd = open("/sys/devices/system/cpu/possible", O_RDONLY | O_CLOEXEC);
	ssize_t length;
	__u32 cpus;

	if (fd < 0)
		return -errno;
	length = read(fd, list, sizeof(list) - 1);
	cpus = length > 0 ? ow_parse_cpu_list(list) : 0;
	close(fd);
	return cpus ? (int)cpus : -ENODATA;
}

/* Return the maximum number of owners. */
static __u32 count_max_owners(const struct ow_tracer_config *config, const struct ow_shape *shape)
{
	size_t bytes = sizeof(struct ow_owner_counts) +
		       (config->queue_time ? sizeof(struct ow_owner_waits) : 0);
	__u32 max_owners = OW_MAX_OWNER_BYTES / bytes / shape->nr_cpus;

	if (config->by == OW_BY_NONE)
		return 1;
	if (max_owners > OW_MAX_OWNERS)
		return OW_MAX_OWNERS;
	return max_owners < OW_MIN_OWNERS ? OW_MIN_OWNERS : max_owners;
}

struct map_sizes ow_compute_map_sizes(const struct ow_tracer_config *config,
				      const struct ow_shape *shape)
{
	__u32 queue = ow_queue_hists_per_target(shape->nr_lanes, shape->spread);
	__u32 stamps = config->nr_stamps ? config->nr_stamps : 1;
	__u32 rows = config->nr_targets * shape->nr_cpus;
	bool shared = ow_shares_lanes(shape);
	bool submitters = config->slow_ns || config->by == OW_BY_PROCESS;
	__u32 owners = count_max_owners(config, shape);
	__u32 counts = config->by ? (OW_SHARED_OWNERS + owners) * shape->nr_cpus : 1;

	return (struct map_sizes){
		.full_rows = shared ? 1 : rows,
		.bare_rows = shared ? rows : 1,
		.used_rows = rows,
		.hot_hists = shared ? config->nr_targets * shape->nr_lanes : 1,
		.cold_hists = config->nr_targets * ow_cold_hists_per_target(shape->spread),
		.queue_latency = config->queue_time ? config->nr_targets * queue : 1,
		.statuses = config->nr_targets * OW_NR_OPS,
		.stamps = stamps,
		.queue_stamps = config->queue_time ? stamps : 1,
		.hashed_queue_stamps = config->queue_time ? OW_HASHED_ENTRIES : 1,
		.waits = config->queue_time ? OW_WAITS : 1,
		.throttled = config->queue_time ? OW_THROTTLED_BIOS : 1,
		.bios = config->nr_bios ? config->nr_bios : 1,
		.submitters = submitters ? stamps : 1,
		.hashed_submitters = submitters ? OW_HASHED_ENTRIES : 1,
		.parts = config->slow_ns ? OW_SLOW_PARTS : 1,
		.slow_ring = config->slow_ns ? OW_SLOW_RING_BYTES : (__u32)sysconf(_SC_PAGESIZE),
		.owners = owners,
		.owner_counts = counts,
		.owner_waits = config->queue_time ? counts : 1,
		.recent_owners = config->by ? shape->nr_cpus * OW_NR_OWNER_CACHES : 1,
		.owner_entries = config->by ? OW_SHARED_OWNERS + owners : 1,
	};
}

/* A hash map takes about 64 bytes per entry in addition to the value. */
#define HASH_ENTRY_BYTES(type) (64 + sizeof(type))

static __u64 sum_map_bytes(const struct ow_tracer_config *config, const struct ow_shape *shape)
{
	struct map_sizes n = ow_compute_map_sizes(config, shape);

	return (__u64)n.full_rows * sizeof(struct ow_full_row) +
	       n.bare_rows * sizeof(struct ow_row) + n.used_rows * sizeof(__u64) +
	       n.hot_hists * sizeof(struct ow_hot_hists) + n.cold_hists * sizeof(struct ow_hist) +
	       n.queue_latency * sizeof(struct ow_latency) +
	       n.statuses * sizeof(__u64[OW_NR_STATUS]) +
	       (__u64)(n.stamps + n.queue_stamps) * sizeof(struct ow_stamp) +
	       n.hashed_queue_stamps * HASH_ENTRY_BYTES(__u64[2]) +
	       n.waits * sizeof(struct ow_wait) + n.throttled * HASH_ENTRY_BYTES(__u64[2]) +
	       n.bios * HASH_ENTRY_BYTES(__u64[4]) + n.slow_ring +
	       (__u64)n.submitters * sizeof(struct ow_submitter) +
	       n.hashed_submitters * HASH_ENTRY_BYTES(struct ow_submitter) +
	       n.parts * HASH_ENTRY_BYTES(__u64) + n.owners * HASH_ENTRY_BYTES(struct ow_owner) +
	       (__u64)n.owner_counts * sizeof(struct ow_owner_counts) +
	       (__u64)n.owner_waits * sizeof(struct ow_owner_waits) +
	       (__u64)n.recent_owners * sizeof(struct ow_recent_owner[OW_RECENT_OWNERS]) +
	       OW_HASHED_STAMPS * HASH_ENTRY_BYTES(__u64[2]) +
	       OW_TABLE_SIZE * sizeof(struct ow_disk) + OW_MAX_TARGETS * sizeof(struct ow_target);
}

struct ow_shape ow_choose_shape(const struct ow_tracer_config *config, __u32 nr_cpus)
{
	struct ow_shape shape = {.nr_cpus = nr_cpus, .nr_lanes = 1, .spread = 1};

	while (shape.spread < OW_MAX_SPREAD && shape.spread < nr_cpus)
		shape.spread *= 2;
	shape.nr_lanes = nr_cpus;
	if (sum_map_bytes(config, &shape) <= OW_MAX_MAP_BYTES)
		return shape;
	shape.nr_lanes = 1;
	while (shape.nr_lanes * 2 < nr_cpus)
		shape.nr_lanes *= 2;
	while (shape.nr_lanes > 1 && sum_map_bytes(config, &shape) > OW_MAX_MAP_BYTES)
		shape.nr_lanes /= 2;
	return shape;
}

__u64 ow_tracer_compute_map_bytes(const struct ow_tracer_config *config)
{
	struct ow_shape shape = ow_choose_shape(config, config->nr_cpus);

	return sum_map_bytes(config, &shape);
}

__u32 ow_tracer_count_lanes(const struct ow_tracer_config *config)
{
	return ow_choose_shape(config, config->nr_cpus).nr_lanes;
}
