/* SPDX-License-Identifier: MIT */
/*
 * The drive's own clock. It stops while the drive is stalled, and runs slower while the drive is
 * throttled. Commands are timed by this clock, so a stall delays each command that waits for it by
 * exactly the time that the command waits. Pure; needs the drive's lock.
 */
#ifndef OPWATCH_DRIVE_OWN_CLOCK_H
#define OPWATCH_DRIVE_OWN_CLOCK_H

#include <stdint.h>

#define OW_FULL_SPEED 1000

/* Times with the host's clock are CLOCK_MONOTONIC. */
struct ow_own_clock {
	uint64_t anchor_ns;  /* by the host's clock; the end of a stall while it lasts */
	uint64_t own_ns;     /* by the drive's clock at the anchor */
	uint64_t stalled_ns; /* all stalls since the start; only grows */
	uint32_t permille;   /* speed */
};

void ow_own_clock_start(struct ow_own_clock *clock, uint64_t now_ns);
/* Return the drive's time at @now_ns. */
uint64_t ow_own_clock_read(const struct ow_own_clock *clock, uint64_t now_ns);
/* Return when the drive's clock reaches @own_ns, unless it is stopped or its speed changes. */
uint64_t ow_own_clock_convert(const struct ow_own_clock *clock, uint64_t own_ns);
/* Stop for @for_ns from @now_ns, or from the end of the current stall. Returns the begin. */
uint64_t ow_own_clock_stop(struct ow_own_clock *clock, uint64_t now_ns, uint64_t for_ns);
/* Run at @permille of full speed from @now_ns. */
void ow_own_clock_set_speed(struct ow_own_clock *clock, uint64_t now_ns, uint32_t permille);

#endif
