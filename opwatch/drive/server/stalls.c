// SPDX-License-Identifier: MIT
/* Times in which the drive stops: housekeeping, reads of log pages, leaving a sleep state. */
#include "drive.h"

#include <string.h>

void ow_drive_stall(struct ow_drive *drive, enum ow_episode_kind kind, uint64_t for_ns)
{
	uint64_t now_ns = ow_read_clock_ns();
	uint64_t begin_ns = ow_own_clock_stop(&drive->clock, now_ns, for_ns);

	/* The answers that are not due yet become due later. */
	if (drive->busy_until_ns > now_ns)
		drive->busy_until_ns += for_ns;
	ow_episodes_add(&drive->episodes, kind, begin_ns, begin_ns + for_ns);
}

uint64_t ow_drive_read_stalled_ns(const struct ow_drive *drive)
{
	return __atomic_load_n(&drive->clock.stalled_ns, __ATOMIC_RELAXED);
}

static void run_periodic_stall(void *arg)
{
	struct ow_drive *drive = arg;
	struct ow_faults *faults = &drive->faults;
	uint64_t next_ns = 0;

	pthread_mutex_lock(&drive->lock);
	/* A call that was added for an earlier setting comes too early, and does nothing. */
	if (faults->stall_every_ns && ow_read_clock_ns() >= faults->next_stall_ns) {
		ow_drive_stall(drive, OW_EPISODE_STALL, faults->stall_for_ns);
		next_ns = faults->next_stall_ns += faults->stall_every_ns;
	}
	pthread_mutex_unlock(&drive->lock);
	if (next_ns)
		ow_timer_add(&drive->timer, next_ns, run_periodic_stall, drive);
}

int ow_drive_set_stall(struct ow_drive *drive, uint64_t every_ns, uint64_t for_ns)
{
	struct ow_faults *faults = &drive->faults;

	if (!every_ns) {
		ow_drive_stall(drive, OW_EPISODE_STALL, for_ns);
		return 0;
	}
	faults->stall_every_ns = every_ns;
	faults->stall_for_ns = for_ns;
	faults->next_stall_ns = ow_read_clock_ns() + every_ns;
	return ow_timer_add(&drive->timer, faults->next_stall_ns, run_periodic_stall, drive);
}

void ow_drive_wake(struct ow_drive *drive, uint64_t now_ns)
{
	const struct ow_faults *faults = &drive->faults;

	if (faults->sleep_after_ns && now_ns >= drive->busy_until_ns + faults->sleep_after_ns)
		ow_drive_stall(drive, OW_EPISODE_SLEEP_EXIT, faults->sleep_exit_ns);
}
