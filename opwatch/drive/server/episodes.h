/* SPDX-License-Identifier: MIT */
/* When the drive's faults acted: the newest episodes of each kind. Pure; needs the drive's lock. */
#ifndef OPWATCH_DRIVE_EPISODES_H
#define OPWATCH_DRIVE_EPISODES_H

#include <stdint.h>

#define OW_EPISODES_KEPT 512

enum ow_episode_kind {
	OW_EPISODE_STALL,
	OW_EPISODE_LOG_STALL,
	OW_EPISODE_SLEEP_EXIT,
	OW_EPISODE_THERMAL_LIGHT,
	OW_EPISODE_THERMAL_HEAVY,
	OW_EPISODE_SLOW_DIE,
	OW_EPISODE_SLOW,
	OW_EPISODE_WAY,
	OW_EPISODE_KINDS
};

struct ow_episode {
	uint64_t begin_ns; /* CLOCK_MONOTONIC */
	uint64_t end_ns;   /* 0: not known yet */
};

struct ow_episodes {
	struct ow_episode kept[OW_EPISODE_KINDS][OW_EPISODES_KEPT]; /* rings */
	uint64_t count[OW_EPISODE_KINDS];
};

/* Return the kind's name in truth.json. */
const char *ow_episode_name(enum ow_episode_kind kind);
void ow_episodes_add(struct ow_episodes *episodes, enum ow_episode_kind kind, uint64_t begin_ns,
		     uint64_t end_ns);
/* Begin or end an episode at @now_ns. Does nothing if that is its state already. */
void ow_episodes_switch(struct ow_episodes *episodes, enum ow_episode_kind kind, uint64_t now_ns,
			int on);
/* Return the kept episode @index, 0 being the oldest, or NULL after the last. */
const struct ow_episode *ow_episodes_get(const struct ow_episodes *episodes,
					 enum ow_episode_kind kind, uint64_t index);
/* Return the number of episodes of all kinds that are no longer kept. */
uint64_t ow_episodes_count_dropped(const struct ow_episodes *episodes);

#endif
