// SPDX-License-Identifier: MIT
/* Log pages and Identify data, byte by byte, against the offsets in the specifications. */
#include "check.h"
#include "pages.h"

static uint64_t read_number(const uint8_t *page, unsigned int offset, unsigned int width)
{
	uint64_t value = 0;

	for (unsigned int i = 0; i < width; i++) {
		if (i < 8)
			value |= (uint64_t)page[offset + i] << 8 * i;
		else
			CHECK(!page[offset + i]);
	}
	return value;
}

static struct ow_page_facts make_facts(void)
{
	struct ow_page_facts facts = {
		.counters =
			{
				.host_write_bytes = 512000ULL * 7 + 1,
				.host_read_bytes = 512000ULL * 5,
				.host_writes = 11,
				.host_reads = 13,
				.nand_write_bytes = 0x123456789abcdef0,
				.nand_read_bytes = 17,
				.erases = 19,
				.power_cycles = 23,
				.unsafe_shutdowns = 29,
				.media_errors = 31,
				.physical_bytes = 1100 << 20,
				.user_bytes = 1000 << 20,
				.valid_bytes = 37 * 4096,
				.free_superblocks = 5,
				.bad_superblocks = 41,
				.failed_dies = 2,
				.erase_min = 43,
				.erase_max = 47,
				.erase_avg_milli = 45999,
				.percentage_used = 53,
			},
		.config =
			{
				.user_bytes = 1000 << 20,
				.physical_bytes = 1200 << 20,
				.superblock_bytes = 4 << 20,
				.iu_bytes = 4096,
				.dies = 16,
				.endurance_cycles = 3000,
				.buffer_bytes = 1 << 20,
			},
		.serial = "SN123",
		.unaligned_writes = 59,
		.power_on_s = 2 * 3600 + 5,
	};
	return facts;
}

static void test_smart_page(void)
{
	struct ow_page_facts facts = make_facts();
	uint8_t page[OW_LOG_BYTES];

	ow_fill_log_smart(page, &facts);
	CHECK(page[0] == 4);  /* reliability degraded: dies have failed */
	CHECK(page[3] == 50); /* 100 MiB of 200 MiB spare */
	CHECK(page[4] == 10);
	CHECK(page[5] == 53);
	CHECK(read_number(page, 32, 16) == 5); /* whole units are not rounded */
	CHECK(read_number(page, 48, 16) == 8); /* one byte more rounds up to the next unit */
	CHECK(read_number(page, 64, 16) == 13);
	CHECK(read_number(page, 80, 16) == 11);
	CHECK(read_number(page, 112, 16) == 23);
	CHECK(read_number(page, 128, 16) == 2);
	CHECK(read_number(page, 144, 16) == 29);
	CHECK(read_number(page, 160, 16) == 31);
}

static void test_smart_warnings(void)
{
	struct ow_page_facts facts = make_facts();
	uint8_t page[OW_LOG_BYTES];

	facts.counters.failed_dies = 0;
	facts.counters.physical_bytes = facts.config.physical_bytes;
	facts.counters.percentage_used = 300;
	ow_fill_log_smart(page, &facts);
	CHECK(page[0] == 0 && page[3] == 100 && page[5] == 255);
	facts.counters.physical_bytes = facts.config.user_bytes + (19 << 20);
	ow_fill_log_smart(page, &facts);
	CHECK(page[0] == 1 && page[3] == 9);
	facts.counters.read_only = 1;
	ow_fill_log_smart(page, &facts);
	CHECK(page[0] == 13 && page[3] == 0);
	facts.counters.physical_bytes = 0;
	ow_fill_log_ocp(page, &facts);
	CHECK(page[120] == 0);
}

static void test_smart_data_units_wrap(void)
{
	struct ow_page_facts facts = make_facts();
	uint8_t page[OW_LOG_BYTES];

	facts.wrap_sectors = 1ULL << 32;
	facts.counters.host_write_bytes = (512ULL << 32) - 512;
	ow_fill_log_smart(page, &facts);
	CHECK(read_number(page, 48, 16) ==
	      4294968); /* the last value before the wrap, rounded up */
	facts.counters.host_write_bytes += 512;
	ow_fill_log_smart(page, &facts);
	CHECK(read_number(page, 48, 16) == 0);
	facts.wrap_base_bytes = 512;
	ow_fill_log_smart(page, &facts);
	CHECK(read_number(page, 48, 16) == 1);
}

static void test_endurance_page(void)
{
	struct ow_page_facts facts = make_facts();
	uint8_t page[OW_LOG_BYTES];

	ow_fill_log_endurance(page, &facts);
	CHECK(read_number(page, 32, 16) == 3000ULL * (1200 << 20) / 1000000000);
	CHECK(read_number(page, 48, 16) == 1);
	CHECK(read_number(page, 64, 16) == 1);
	CHECK(read_number(page, 80, 16) == 1311768468);
	CHECK(read_number(page, 96, 16) == 13);
	CHECK(read_number(page, 112, 16) == 11);
	CHECK(read_number(page, 128, 16) == 31);
	CHECK(read_number(page, 160, 16) == 1000 << 20);
	CHECK(read_number(page, 176, 16) == 0);
	facts.counters.host_write_bytes = 0;
	ow_fill_log_endurance(page, &facts);
	CHECK(read_number(page, 64, 16) == 0);
}

static void test_fdp_page(void)
{
	struct ow_page_facts facts = make_facts();
	uint8_t page[OW_FDP_BYTES];

	ow_fill_log_fdp(page, &facts);
	CHECK(read_number(page, 0, 16) == 512000ULL * 7 + 1);
	CHECK(read_number(page, 16, 16) == 0x123456789abcdef0);
	CHECK(read_number(page, 32, 16) == 19 * (4 << 20));
}

static void test_ocp_page(void)
{
	static const uint8_t guid[] = {0xc5, 0xaf, 0x10, 0x28, 0xea, 0xbf, 0xf2, 0xa4,
				       0x9c, 0x4f, 0x6f, 0x7c, 0xc9, 0x14, 0xd5, 0xaf};
	struct ow_page_facts facts = make_facts();
	uint8_t page[OW_LOG_BYTES];

	ow_fill_log_ocp(page, &facts);
	CHECK(read_number(page, 0, 16) == 0x123456789abcdef0);
	CHECK(read_number(page, 16, 16) == 17);
	CHECK(read_number(page, 32, 6) == 41 && read_number(page, 38, 2) == 50);
	CHECK(read_number(page, 56, 8) == 31);
	CHECK(page[80] == 53);
	CHECK(read_number(page, 88, 4) == 47 && read_number(page, 92, 4) == 43);
	CHECK(read_number(page, 112, 4) == 29);
	CHECK(page[120] == 20);			    /* 5 superblocks of 4 MiB in 100 MiB of spare */
	CHECK(read_number(page, 128, 2) == 0xffff); /* no power-loss protection */
	CHECK(read_number(page, 136, 8) == 59);
	CHECK(read_number(page, 152, 8) == 37 * 8);
	CHECK(read_number(page, 176, 8) == 3000ULL * (1200 << 20));
	CHECK(read_number(page, 216, 2) == 16 && read_number(page, 220, 2) == 2);
	CHECK(read_number(page, 224, 8) == 45);
	CHECK(read_number(page, 494, 2) == 6);
	CHECK(!memcmp(page + 496, guid, sizeof(guid)));
}

/* The 10-byte items from index 31 count sectors; the trim count excludes ignored trims. */
static void test_memblaze_page(void)
{
	struct ow_page_facts facts = make_facts();
	uint8_t page[OW_LOG_BYTES];

	facts.counters.trim_bytes = 1009 * 512;
	facts.counters.trim_ignored_bytes = 8 * 512;
	facts.counters.write_zeroes_bytes = 61 * 512;
	ow_fill_log_memblaze(page, &facts);
	CHECK(page[310] == 0xe5 && page[311] == 100);
	CHECK(read_number(page, 312, 6) == 1001);
	CHECK(page[320] == 0xe7 && read_number(page, 322, 6) == 61);
	CHECK(page[511] == 3);
}

/* Values too large for a field saturate at all ones instead of wrapping. */
static void test_large_values_saturate(void)
{
	struct ow_page_facts facts = make_facts();
	uint8_t page[OW_LOG_BYTES];

	facts.counters.unsafe_shutdowns = 1ULL << 40;
	facts.config.endurance_cycles = UINT32_MAX;
	facts.config.physical_bytes = 1ULL << 50;
	ow_fill_log_ocp(page, &facts);
	CHECK(read_number(page, 112, 4) == UINT32_MAX);
	CHECK(read_number(page, 176, 8) == UINT64_MAX);
	facts.counters.host_write_bytes = UINT64_MAX;
	ow_fill_log_smart(page, &facts);
	CHECK(read_number(page, 48, 16) == UINT64_MAX / 512000 + 1);
}

static void test_identify_pages(void)
{
	struct ow_page_facts facts = make_facts();
	uint8_t page[OW_IDENTIFY_BYTES];

	ow_fill_identify_controller(page, &facts);
	CHECK(!memcmp(page + 4, "SN123               ", 20));
	CHECK(!memcmp(page + 24, "opwatch simulated SSD  ", 23));
	CHECK(read_number(page, 96, 4) == (1 << 4 | 1 << 19));
	CHECK(read_number(page, 280, 16) == 1000 << 20 && read_number(page, 296, 16) == 0);
	CHECK(read_number(page, 340, 2) == 1 && read_number(page, 516, 4) == 1);
	CHECK(read_number(page, 520, 2) == 12);
	CHECK(page[525] == 1); /* a volatile write cache */
	ow_fill_identify_namespace(page, &facts);
	CHECK(read_number(page, 0, 8) == 2048000 && read_number(page, 8, 8) == 2048000);
	CHECK(read_number(page, 16, 8) == 37 * 8);
	CHECK(page[33] == 9);
	CHECK(read_number(page, 48, 16) == 1000 << 20);
	CHECK(read_number(page, 64, 2) == 7 && read_number(page, 68, 2) == 7);
	CHECK(read_number(page, 102, 2) == 1);
	CHECK(page[130] == 9);
}

int main(void)
{
	test_smart_page();
	test_smart_warnings();
	test_smart_data_units_wrap();
	test_endurance_page();
	test_fdp_page();
	test_ocp_page();
	test_memblaze_page();
	test_large_values_saturate();
	test_identify_pages();
	return 0;
}
