// SPDX-License-Identifier: MIT
/* NVMe Identify structures of a drive. Offsets are decimal bytes, as in the specification. */
#include "pages.h"
#include "drive/server/put.h"

#include <stdio.h>
#include <string.h>

#define MODEL	 "opwatch simulated SSD"
#define FIRMWARE "1"

enum {
	CTRATT_ENDURANCE_GROUPS = 1 << 4,
	CTRATT_FDP = 1 << 19,
	LPA_EXTENDED = 1 << 2,
	ONCS_DATASET_MANAGEMENT = 1 << 2,
	ONCS_WRITE_ZEROES = 1 << 3,
	NSFEAT_OPTIMAL_SIZES = 1 << 4,
	DLFEAT_READS_ZEROES = 1 << 0,
	DLFEAT_WRITE_ZEROES = 1 << 3,
};

/* Store @text left-aligned and padded with spaces. */
static void put_text(uint8_t *page, unsigned int offset, unsigned int width, const char *text)
{
	memset(page + offset, ' ', width);
	memcpy(page + offset, text, strnlen(text, width));
}

/* Store the temperature thresholds in kelvin; 0 stands for "not reported". */
static void put_thermal_limits(uint8_t *page, const struct ow_thermal *thermal)
{
	if (!thermal->config.cool_ms)
		return;
	ow_put(page, 266, 2, OW_KELVIN + ow_thermal_find_warning_celsius(thermal));
	ow_put(page, 268, 2, OW_KELVIN + ow_thermal_find_critical_celsius(thermal));
	ow_put(page, 322, 2, 1); /* supports host-controlled thermal management */
	ow_put(page, 324, 2, OW_KELVIN);
	ow_put(page, 326, 2, OW_KELVIN + ow_thermal_find_critical_celsius(thermal));
}

void ow_fill_identify_controller(uint8_t *page, const struct ow_page_facts *facts)
{
	memset(page, 0, OW_IDENTIFY_BYTES);
	put_text(page, 4, 20, facts->serial);
	put_text(page, 24, 40, MODEL);
	put_text(page, 64, 8, FIRMWARE);
	ow_put(page, 80, 4, 0x00020100); /* NVMe 2.1 */
	ow_put(page, 96, 4, CTRATT_ENDURANCE_GROUPS | CTRATT_FDP);
	ow_put(page, 111, 1, 1); /* an I/O controller */
	ow_put(page, 261, 1, LPA_EXTENDED);
	put_thermal_limits(page, &facts->thermal);
	ow_put(page, 280, 16, facts->config.user_bytes);
	ow_put(page, 340, 2, 1); /* one endurance group */
	ow_put(page, 512, 1, 0x66);
	ow_put(page, 513, 1, 0x44);
	ow_put(page, 516, 4, 1);
	ow_put(page, 520, 2, ONCS_DATASET_MANAGEMENT | ONCS_WRITE_ZEROES);
	ow_put(page, 525, 1, facts->config.buffer_bytes && !facts->config.plp);
	snprintf((char *)page + 768, 256, "nqn.2014-08.org.nvmexpress:opwatch:%s", facts->serial);
}

/* Return a 64-bit identifier derived from the serial number (FNV-1a). */
static uint64_t hash_serial(const char *serial)
{
	uint64_t hash = 0xcbf29ce484222325;

	for (; *serial; serial++)
		hash = (hash ^ (uint8_t)*serial) * 0x100000001b3;
	return hash;
}

void ow_fill_identify_namespace(uint8_t *page, const struct ow_page_facts *facts)
{
	const struct ow_ftl_config *config = &facts->config;
	uint64_t unit = config->iu_bytes / OW_LBA_BYTES - 1; /* zero-based */

	memset(page, 0, OW_IDENTIFY_BYTES);
	ow_put(page, 0, 8, config->user_bytes / OW_LBA_BYTES);
	ow_put(page, 8, 8, config->user_bytes / OW_LBA_BYTES);
	ow_put(page, 16, 8, facts->counters.valid_bytes / OW_LBA_BYTES);
	ow_put(page, 24, 1, NSFEAT_OPTIMAL_SIZES);
	ow_put(page, 33, 1, DLFEAT_READS_ZEROES | DLFEAT_WRITE_ZEROES);
	ow_put(page, 48, 16, config->user_bytes);
	for (unsigned int offset = 64; offset <= 70; offset += 2)
		ow_put(page, offset, 2, unit); /* write and deallocate, granularity and alignment */
	ow_put(page, 72, 2, unit);
	ow_put(page, 102, 2, 1); /* in endurance group 1 */
	ow_put(page, 112, 8, hash_serial(facts->serial));
	ow_put(page, 120, 8, hash_serial(facts->serial));
	ow_put(page, 130, 1, __builtin_ctz(OW_LBA_BYTES));
}
