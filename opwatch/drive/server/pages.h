/* SPDX-License-Identifier: MIT */
/*
 * NVMe Identify structures and log pages as bytes, from a drive's counters.
 *
 * Pure: no clock, lock or I/O. Byte order (little endian), units, rounding and saturation follow
 * the NVMe base specification 2.1 and the OCP Datacenter NVMe SSD specification 2.7.
 */
#ifndef OPWATCH_DRIVE_PAGES_H
#define OPWATCH_DRIVE_PAGES_H

#include "ftl/core/ftl.h"
#include "thermal.h"

#define OW_IDENTIFY_BYTES 4096
#define OW_LOG_BYTES	  512
#define OW_FDP_BYTES	  64
#define OW_LBA_BYTES	  OW_FTL_SECTOR_BYTES

/* The input of the pages. */
struct ow_page_facts {
	struct ow_ftl_counters counters; /* as reported by the firmware, possibly stale or wrong */
	struct ow_ftl_config config;
	char serial[21];
	struct ow_thermal thermal;
	uint64_t slow_die_operations;
	uint64_t unaligned_writes; /* writes that start or end within a mapping unit */
	uint64_t power_on_s;
	uint64_t wrap_sectors;	  /* Data Units of 02h wrap at this many sectors; 0: no wrap */
	uint64_t wrap_base_bytes; /* added before the wrap */
};

/* Return the remaining spare in percent. */
uint8_t ow_compute_available_spare(const struct ow_page_facts *facts);

/* Fill one whole page of OW_IDENTIFY_BYTES, OW_LOG_BYTES or OW_FDP_BYTES. */
void ow_fill_identify_controller(uint8_t *page, const struct ow_page_facts *facts);
void ow_fill_identify_namespace(uint8_t *page, const struct ow_page_facts *facts);
void ow_fill_log_smart(uint8_t *page, const struct ow_page_facts *facts);     /* 02h */
void ow_fill_log_endurance(uint8_t *page, const struct ow_page_facts *facts); /* 09h */
void ow_fill_log_fdp(uint8_t *page, const struct ow_page_facts *facts);	      /* 22h */
void ow_fill_log_ocp(uint8_t *page, const struct ow_page_facts *facts);	      /* C0h */
void ow_fill_log_memblaze(uint8_t *page, const struct ow_page_facts *facts);  /* CAh */

#endif
