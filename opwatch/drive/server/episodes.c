// SPDX-License-Identifier: MIT
#include "episodes.h"

#include <stddef.h>

const char *ow_episode_name(enum ow_episode_kind kind)
{
	static const char *const names[OW_EPISODE_KINDS] = {
		[OW_EPISODE_STALL] = "stall",
		[OW_EPISODE_LOG_STALL] = "log-stall",
		[OW_EPISODE_SLEEP_EXIT] = "sleep-exit",
		[OW_EPISODE_THERMAL_LIGHT] = "thermal-light",
		[OW_EPISODE_THERMAL_HEAVY] = "thermal-heavy",
		[OW_EPISODE_SLOW_DIE] = "slow-die",
		[OW_EPISODE_SLOW] = "slow",
		[OW_EPISODE_WAY] = "way",
	};

	return names[kind];
}

void ow_episodes_add(struct ow_episodes *episodes, enum ow_episode_kind kind, uint64_t begin_ns,
		     uint64_t end_ns)
{
	episodes->kept[kind][episodes->count[kind]++ % OW_EPISODES_KEPT] =
		(struct ow_episode){begin_ns, end_ns};
}

void ow_episodes_switch(struct ow_episodes *episodes, enum ow_episode_kind kind, uint64_t now_ns,
			int on)
{
	uint64_t count = episodes->count[kind];
	struct ow_episode *last =
		count ? &episodes->kept[kind][(count - 1) % OW_EPISODES_KEPT] : NULL;
	int is_on = last && !last->end_ns;

	if (on && !is_on)
		ow_episodes_add(episodes, kind, now_ns, 0);
	else if (!on && is_on)
		last->end_ns = now_ns;
}

static uint64_t count_dropped(const struct ow_episodes *episodes, enum ow_episode_kind kind)
{
	uint64_t count = episodes->count[kind];

	return count > OW_EPISODES_KEPT ? count - OW_EPISODES_KEPT : 0;
}

const struct ow_episode *ow_episodes_get(const struct ow_episodes *episodes,
					 enum ow_episode_kind kind, uint64_t index)
{
	index += count_dropped(episodes, kind);
	if (index >= episodes->count[kind])
		return NULL;
	return &episodes->kept[kind][index % OW_EPISODES_KEPT];
}

uint64_t ow_episodes_count_dropped(const struct ow_episodes *episodes)
{
	uint64_t dropped = 0;

	for (int kind = 0; kind < OW_EPISODE_KINDS; kind++)
		dropped += count_dropped(episodes, kind);
	return dropped;
}
