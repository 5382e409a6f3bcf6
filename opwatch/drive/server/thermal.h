/* SPDX-License-Identifier: MIT */
/*
 * The drive's temperature, and host-controlled thermal management by NVMe 2.1, section 8.1.9. Pure;
 * needs the drive's lock.
 */
#ifndef OPWATCH_DRIVE_THERMAL_H
#define OPWATCH_DRIVE_THERMAL_H

#include <stdint.h>

#define OW_IDLE_CELSIUS 40
#define OW_KELVIN	273 /* at 0 degrees Celsius, as drives count */

enum ow_thermal_level { OW_THERMAL_NONE, OW_THERMAL_LIGHT, OW_THERMAL_HEAVY, OW_THERMAL_LEVELS };

/* All zero: the drive stays at OW_IDLE_CELSIUS. */
struct ow_thermal_config {
	uint32_t tmt_celsius[OW_THERMAL_LEVELS]; /* a level begins at its temperature */
	uint32_t heat_mk_per_gb;		 /* 1/1000 K for 10^9 bytes */
	uint32_t cool_ms; /* after this time, 1/e of the excess temperature is left */
};

struct ow_thermal {
	struct ow_thermal_config config;
	double excess_k; /* above OW_IDLE_CELSIUS */
	enum ow_thermal_level level;
	uint32_t transitions[OW_THERMAL_LEVELS];
	uint64_t level_ns[OW_THERMAL_LEVELS];
	uint64_t warning_ns;
	uint64_t critical_ns;
};

/* Return the thresholds of the warning and of the critical temperature, or 0 if not configured. */
uint32_t ow_thermal_find_warning_celsius(const struct ow_thermal *thermal);
uint32_t ow_thermal_find_critical_celsius(const struct ow_thermal *thermal);
uint32_t ow_thermal_read_celsius(const struct ow_thermal *thermal);
/* Advance by @ns in which @bytes were moved. */
void ow_thermal_advance(struct ow_thermal *thermal, uint64_t ns, uint64_t bytes);
/* Return the drive's speed at a level, in thousandths. */
uint32_t ow_thermal_find_permille(enum ow_thermal_level level);

#endif
