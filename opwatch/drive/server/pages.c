// SPDX-License-Identifier: MIT
/* NVMe log pages of a drive. Offsets are decimal bytes, as in the specifications. */
#include "pages.h"
#include "drive/server/put.h"

#include <string.h>

#define SMART_UNIT_BYTES     512000	   /* 1000 units of 512 bytes for any LBA size */
#define ENDURANCE_UNIT_BYTES 1000000000ULL /* 10^9 bytes */
#define SPARE_THRESHOLD	     10
#define NS		     1000000000ULL

enum { WARN_SPARE = 1, WARN_TEMPERATURE = 2, WARN_RELIABILITY = 4, WARN_READ_ONLY = 8 };

static uint64_t divide_rounding_up(uint64_t bytes, uint64_t unit)
{
	return bytes / unit + (bytes % unit != 0);
}

/* Return the Data Units of page 02h: bytes after the wrap, rounded up. */
static uint64_t count_smart_units(uint64_t bytes, const struct ow_page_facts *facts)
{
	if (facts->wrap_sectors) {
		uint64_t sectors = (bytes + facts->wrap_base_bytes) / OW_FTL_SECTOR_BYTES;

		bytes = sectors % facts->wrap_sectors * OW_FTL_SECTOR_BYTES;
	}
	return divide_rounding_up(bytes, SMART_UNIT_BYTES);
}

uint8_t ow_compute_available_spare(const struct ow_page_facts *facts)
{
	uint64_t user = facts->config.user_bytes;
	uint64_t first = facts->config.physical_bytes - user;
	uint64_t now = facts->counters.physical_bytes;

	if (facts->counters.read_only || now <= user || !first)
		return 0;
	return now - user >= first ? 100 : (unsigned __int128)(now - user) * 100 / first;
}

static uint8_t compute_critical_warning(const struct ow_page_facts *facts)
{
	uint8_t warning = ow_compute_available_spare(facts) < SPARE_THRESHOLD ? WARN_SPARE : 0;

	if (facts->thermal.config.cool_ms &&
	    ow_thermal_read_celsius(&facts->thermal) >=
		    ow_thermal_find_warning_celsius(&facts->thermal))
		warning |= WARN_TEMPERATURE;
	if (facts->counters.failed_dies || facts->counters.read_only)
		warning |= WARN_RELIABILITY;
	return facts->counters.read_only ? warning | WARN_READ_ONLY : warning;
}

static uint8_t clamp_percentage_used(const struct ow_page_facts *facts)
{
	return facts->counters.percentage_used < 255 ? facts->counters.percentage_used : 255;
}

/*
 * Return the bytes that can be written at a write amplification of 1 before 100 % is used. 0:
 * unknown.
 */
static unsigned __int128 compute_endurance_bytes(const struct ow_page_facts *facts)
{
	return (unsigned __int128)facts->config.endurance_cycles * facts->config.physical_bytes;
}

/* Store the temperature, the times above its thresholds, and the thermal management. */
static void put_thermal(uint8_t *page, const struct ow_thermal *thermal)
{
	uint32_t kelvin = OW_KELVIN + ow_thermal_read_celsius(thermal);

	ow_put(page, 1, 2, kelvin);
	ow_put(page, 192, 4, thermal->warning_ns / (60 * NS));
	ow_put(page, 196, 4, thermal->critical_ns / (60 * NS));
	ow_put(page, 200, 2, kelvin);
	ow_put(page, 216, 4, thermal->transitions[OW_THERMAL_LIGHT]);
	ow_put(page, 220, 4, thermal->transitions[OW_THERMAL_HEAVY]);
	ow_put(page, 224, 4, thermal->level_ns[OW_THERMAL_LIGHT] / NS);
	ow_put(page, 228, 4, thermal->level_ns[OW_THERMAL_HEAVY] / NS);
}

void ow_fill_log_smart(uint8_t *page, const struct ow_page_facts *facts)
{
	const struct ow_ftl_counters *counters = &facts->counters;

	memset(page, 0, OW_LOG_BYTES);
	ow_put(page, 0, 1, compute_critical_warning(facts));
	ow_put(page, 3, 1, ow_compute_available_spare(facts));
	ow_put(page, 4, 1, SPARE_THRESHOLD);
	ow_put(page, 5, 1, clamp_percentage_used(facts));
	ow_put(page, 6, 1, compute_critical_warning(facts)); /* for the only endurance group */
	ow_put(page, 32, 16, count_smart_units(counters->host_read_bytes, facts));
	ow_put(page, 48, 16, count_smart_units(counters->host_write_bytes, facts));
	ow_put(page, 64, 16, counters->host_reads);
	ow_put(page, 80, 16, counters->host_writes);
	ow_put(page, 112, 16, counters->power_cycles);
	ow_put(page, 128, 16, facts->power_on_s / 3600);
	ow_put(page, 144, 16, counters->unsafe_shutdowns);
	ow_put(page, 160, 16, counters->media_errors);
	put_thermal(page, &facts->thermal);
}

void ow_fill_log_endurance(uint8_t *page, const struct ow_page_facts *facts)
{
	const struct ow_ftl_counters *counters = &facts->counters;

	memset(page, 0, OW_LOG_BYTES);
	ow_put(page, 0, 1, compute_critical_warning(facts));
	ow_put(page, 3, 1, ow_compute_available_spare(facts));
	ow_put(page, 4, 1, SPARE_THRESHOLD);
	ow_put(page, 5, 1, clamp_percentage_used(facts));
	ow_put(page, 32, 16, compute_endurance_bytes(facts) / ENDURANCE_UNIT_BYTES);
	ow_put(page, 48, 16, divide_rounding_up(counters->host_read_bytes, ENDURANCE_UNIT_BYTES));
	ow_put(page, 64, 16, divide_rounding_up(counters->host_write_bytes, ENDURANCE_UNIT_BYTES));
	ow_put(page, 80, 16, divide_rounding_up(counters->nand_write_bytes, ENDURANCE_UNIT_BYTES));
	ow_put(page, 96, 16, counters->host_reads);
	ow_put(page, 112, 16, counters->host_writes);
	ow_put(page, 128, 16, counters->media_errors);
	ow_put(page, 160, 16, facts->config.user_bytes);
}

void ow_fill_log_fdp(uint8_t *page, const struct ow_page_facts *facts)
{
	const struct ow_ftl_counters *counters = &facts->counters;

	memset(page, 0, OW_FDP_BYTES);
	ow_put(page, 0, 16, counters->host_write_bytes);
	ow_put(page, 16, 16, counters->nand_write_bytes);
	ow_put(page, 32, 16, counters->erases * facts->config.superblock_bytes);
}

/* Return the erased superblocks as a percentage of the spare: OCP's percentage of free blocks. */
static uint8_t compute_percent_free(const struct ow_ftl_counters *counters,
				    uint64_t superblock_bytes)
{
	uint64_t spare = counters->physical_bytes - counters->user_bytes;
	uint64_t free_bytes = counters->free_superblocks * superblock_bytes;

	if (counters->physical_bytes <= counters->user_bytes)
		return 0;
	return free_bytes >= spare ? 100 : (unsigned __int128)free_bytes * 100 / spare;
}

static void put_wear(uint8_t *page, const struct ow_page_facts *facts)
{
	const struct ow_ftl_counters *counters = &facts->counters;

	ow_put(page, 32, 6, counters->bad_superblocks);
	ow_put(page, 38, 2, ow_compute_available_spare(facts));
	ow_put(page, 46, 2, 100); /* system blocks are not simulated: report all as good */
	ow_put(page, 80, 1, clamp_percentage_used(facts));
	ow_put(page, 88, 4, counters->erase_max);
	ow_put(page, 92, 4, counters->erase_min);
	ow_put(page, 176, 8,
	       compute_endurance_bytes(facts) >> 64 ? UINT64_MAX : compute_endurance_bytes(facts));
	ow_put(page, 216, 2, facts->config.dies);
	ow_put(page, 220, 2, counters->failed_dies);
	ow_put(page, 224, 8, counters->erase_avg_milli / 1000);
}

void ow_fill_log_ocp(uint8_t *page, const struct ow_page_facts *facts)
{
	static const uint8_t guid[16] = {0xc5, 0xaf, 0x10, 0x28, 0xea, 0xbf, 0xf2, 0xa4,
					 0x9c, 0x4f, 0x6f, 0x7c, 0xc9, 0x14, 0xd5, 0xaf};
	const struct ow_ftl_counters *counters = &facts->counters;

	memset(page, 0, OW_LOG_BYTES);
	ow_put(page, 0, 16, counters->nand_write_bytes);
	ow_put(page, 16, 16, counters->nand_read_bytes);
	ow_put(page, 56, 8, counters->media_errors);
	put_wear(page, facts);
	ow_put(page, 101, 2, 7); /* the page's version as of specification 2.7 */
	ow_put(page, 103, 1, 2);
	ow_put(page, 112, 4, counters->unsafe_shutdowns);
	ow_put(page, 120, 1, compute_percent_free(counters, facts->config.superblock_bytes));
	ow_put(page, 128, 2, facts->config.plp ? 100 : 0xffff);
	ow_put(page, 136, 8, facts->unaligned_writes);
	ow_put(page, 152, 8, counters->valid_bytes / OW_LBA_BYTES);
	ow_put(page, 160, 16, facts->config.plp ? counters->unsafe_shutdowns : 0);
	ow_put(page, 494, 2, 6);
	memcpy(page + 496, guid, sizeof(guid));
}

/* Store item @slot of a page of 10-byte items: key, health, 48-bit value. */
static void put_item(uint8_t *page, unsigned int slot, uint8_t key, uint64_t value)
{
	ow_put(page, slot * 10, 1, key);
	ow_put(page, slot * 10 + 1, 1, 100);
	ow_put(page, slot * 10 + 2, 6, value);
}

void ow_fill_log_memblaze(uint8_t *page, const struct ow_page_facts *facts)
{
	const struct ow_ftl_counters *counters = &facts->counters;

	memset(page, 0, OW_LOG_BYTES);
	put_item(page, 31, 0xe5,
		 (counters->trim_bytes - counters->trim_ignored_bytes) / OW_FTL_SECTOR_BYTES);
	put_item(page, 32, 0xe7, counters->write_zeroes_bytes / OW_FTL_SECTOR_BYTES);
	ow_put(page, 511, 1, 3);
}
