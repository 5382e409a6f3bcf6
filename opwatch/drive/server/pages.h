/* SPDX-License-Identifier: MIT */
/*
 * NVMe Identify structures and log pages as bytes, from the counters of a drive.
 *
 * Pure: no clock, no lock, no I/O. Little endian, units, rounding and saturation as the NVMe base
 * specification 2.1 and the OCP Datacenter NVMe SSD specification 2.7 have them.
 */
#ifndef OPWATCH_DRIVE_PAGES_H
#define OPWATCH_DRIVE_PAGES_H

#include "ftl/core/ftl.h"

#define OW_IDENTIFY_BYTES 4096
#define OW_LOG_BYTES	  512
#define OW_FDP_BYTES	  64
#define OW_LBA_BYTES	  OW_FTL_SECTOR_BYTES

/* What the pages are made of. */
struct ow_page_facts {
	struct ow_ftl_counters counters; /* as firmware shows them, which may be late or wrong */
	struct ow_ftl_config config;
	char serial[21];
	uint64_t unaligned_writes; /* commands that do not start or end on a mapping unit */
	uint64_t power_on_s;
	uint64_t wrap_sectors;	  /* Data Units of 02h count sectors modulo this; 0: they do not */
	uint64_t wrap_base_bytes; /* and had counted this much before */
};

/* Percent of the spare that is left. */
uint8_t ow_available_spare(const struct ow_page_facts *facts);

/* Each fills a whole page: OW_IDENTIFY_BYTES, OW_LOG_BYTES or OW_FDP_BYTES. */
void ow_identify_controller(uint8_t *page, const struct ow_page_facts *facts);
void ow_identify_namespace(uint8_t *page, const struct ow_page_facts *facts);
void ow_log_smart(uint8_t *page, const struct ow_page_facts *facts);	 /* 02h */
void ow_log_endurance(uint8_t *page, const struct ow_page_facts *facts); /* 09h */
void ow_log_fdp(uint8_t *page, const struct ow_page_facts *facts);	 /* 22h */
void ow_log_ocp(uint8_t *page, const struct ow_page_facts *facts);	 /* C0h */
void ow_log_memblaze(uint8_t *page, const struct ow_page_facts *facts);	 /* CAh */

#endif
