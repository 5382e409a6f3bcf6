// SPDX-License-Identifier: MIT
/* Thermal throttling: the temperature of the drive's model, and the speed of the drive's clock. */
#include "drive.h"

#include <errno.h>

/* Return the bytes whose transfer heats the drive: all that are programmed, and what the host
 * reads. */
static uint64_t count_heating_bytes(const struct ow_drive *drive)
{
	struct ow_ftl_counters counters;

	ow_ftl_get_counters(drive->ftl, &counters);
	return counters.nand_write_bytes + counters.host_read_bytes;
}

static void throttle(struct ow_drive *drive, uint64_t now_ns)
{
	enum ow_thermal_level level = drive->thermal.level;

	ow_own_clock_set_speed(&drive->clock, now_ns, ow_thermal_find_permille(level));
	ow_episodes_switch(&drive->episodes, OW_EPISODE_THERMAL_LIGHT, now_ns,
			   level == OW_THERMAL_LIGHT);
	ow_episodes_switch(&drive->episodes, OW_EPISODE_THERMAL_HEAVY, now_ns,
			   level == OW_THERMAL_HEAVY);
}

int ow_drive_set_thermal(struct ow_drive *drive, const struct ow_thermal_config *config)
{
	uint64_t now_ns = ow_read_clock_ns();

	if (!drive->service)
		return -EOPNOTSUPP;
	ow_drive_update_thermal(drive);
	drive->thermal.config = *config;
	/* New numbers change a hot drive from now on; without the fault it is cold at once. */
	if (!config->cool_ms) {
		drive->thermal.excess_k = 0;
		drive->thermal.level = OW_THERMAL_NONE;
	}
	drive->thermal_at_ns = now_ns;
	drive->thermal_bytes = count_heating_bytes(drive);
	throttle(drive, now_ns);
	return 0;
}

void ow_drive_update_thermal(struct ow_drive *drive)
{
	enum ow_thermal_level before = drive->thermal.level;
	uint64_t now_ns = ow_read_clock_ns(), bytes;

	if (!drive->thermal.config.cool_ms)
		return;
	bytes = count_heating_bytes(drive);
	ow_thermal_advance(&drive->thermal, now_ns - drive->thermal_at_ns,
			   bytes - drive->thermal_bytes);
	drive->thermal_at_ns = now_ns;
	drive->thermal_bytes = bytes;
	if (drive->thermal.level != before)
		throttle(drive, now_ns);
}
