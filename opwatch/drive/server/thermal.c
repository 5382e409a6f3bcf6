// SPDX-License-Identifier: MIT
#include "thermal.h"

#include <math.h>

#define HYSTERESIS_K	 3 /* a level ends so far below its begin */
#define WARNING_ABOVE_K	 5 /* above the heavy level */
#define CRITICAL_ABOVE_K 10

uint32_t ow_thermal_find_warning_celsius(const struct ow_thermal *thermal)
{
	uint32_t heavy = thermal->config.tmt_celsius[OW_THERMAL_HEAVY];

	return heavy ? heavy + WARNING_ABOVE_K : 0;
}

uint32_t ow_thermal_find_critical_celsius(const struct ow_thermal *thermal)
{
	uint32_t heavy = thermal->config.tmt_celsius[OW_THERMAL_HEAVY];

	return heavy ? heavy + CRITICAL_ABOVE_K : 0;
}

uint32_t ow_thermal_read_celsius(const struct ow_thermal *thermal)
{
	return OW_IDLE_CELSIUS + (uint32_t)thermal->excess_k;
}

uint32_t ow_thermal_find_permille(enum ow_thermal_level level)
{
	static const uint32_t permille[OW_THERMAL_LEVELS] = {1000, 700, 200};

	return permille[level];
}

static enum ow_thermal_level find_level(const struct ow_thermal *thermal)
{
	double celsius = OW_IDLE_CELSIUS + thermal->excess_k;
	int level = OW_THERMAL_HEAVY;

	for (; level > OW_THERMAL_NONE; level--) {
		double least = thermal->config.tmt_celsius[level];

		if (thermal->level >= (enum ow_thermal_level)level)
			least -= HYSTERESIS_K;
		if (celsius >= least)
			break;
	}
	return level;
}

void ow_thermal_advance(struct ow_thermal *thermal, uint64_t ns, uint64_t bytes)
{
	const struct ow_thermal_config *config = &thermal->config;
	enum ow_thermal_level level;
	uint32_t celsius;

	if (!config->cool_ms)
		return;
	thermal->level_ns[thermal->level] += ns;
	celsius = ow_thermal_read_celsius(thermal);
	if (celsius >= ow_thermal_find_critical_celsius(thermal))
		thermal->critical_ns += ns;
	else if (celsius >= ow_thermal_find_warning_celsius(thermal))
		thermal->warning_ns += ns;
	thermal->excess_k *= exp(-(double)ns / (config->cool_ms * 1e6));
	thermal->excess_k += bytes * 1e-9 * config->heat_mk_per_gb / 1000;
	level = find_level(thermal);
	if (level != thermal->level)
		thermal->transitions[level]++;
	thermal->level = level;
}
