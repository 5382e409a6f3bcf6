// SPDX-License-Identifier: MIT
/* Owners of pages: all counters add up over the owners, and a page is its last writer's. */
#include "check.h"
#include "ftl/core/ftl.h"
#include "ftl/core/rng.h"

#define PAGES 20000
#define UNIT  4096
#define HALF  (PAGES / 2)

static struct ow_ftl *make_drive(uint64_t buffer_pages)
{
	struct ow_ftl_config config;
	struct ow_ftl *ftl;

	ow_ftl_config_init(&config);
	config.user_bytes = (uint64_t)PAGES * UNIT;
	config.physical_bytes = config.user_bytes / 10 * 11 / UNIT * UNIT;
	config.superblock_bytes = 128 * UNIT;
	config.buffer_bytes = buffer_pages * UNIT;
	CHECK(!ow_ftl_create(&ftl, &config));
	return ftl;
}

static void write_page(struct ow_ftl *ftl, uint8_t owner, uint64_t page, uint64_t len)
{
	CHECK(!ow_ftl_set_owner(ftl, owner));
	CHECK(!ow_ftl_write(ftl, page * UNIT, len, 0));
}

static struct ow_ftl_owner_counters read_owner(const struct ow_ftl *ftl, uint8_t owner)
{
	struct ow_ftl_owner_counters counters;

	ow_ftl_get_owner_counters(ftl, owner, &counters);
	return counters;
}

/* Compare each sum over all owners with the drive's own counter. */
static void check_sums(const struct ow_ftl *ftl)
{
	struct ow_ftl_owner_counters sum = {0};
	struct ow_ftl_counters all;
	const char *why;

	for (int owner = 0; owner < OW_FTL_MAX_OWNERS; owner++) {
		struct ow_ftl_owner_counters one = read_owner(ftl, owner);

		sum.host_write_bytes += one.host_write_bytes;
		sum.nand_write_bytes += one.nand_write_bytes;
		sum.nand_write_host_bytes += one.nand_write_host_bytes;
		sum.nand_write_gc_bytes += one.nand_write_gc_bytes;
		sum.nand_write_rmw_bytes += one.nand_write_rmw_bytes;
		sum.nand_write_wear_bytes += one.nand_write_wear_bytes;
	}
	ow_ftl_get_counters(ftl, &all);
	CHECK(sum.host_write_bytes == all.host_write_bytes);
	CHECK(sum.nand_write_bytes == all.nand_write_bytes);
	CHECK(sum.nand_write_host_bytes == all.nand_write_host_bytes);
	CHECK(sum.nand_write_gc_bytes == all.nand_write_gc_bytes);
	CHECK(sum.nand_write_rmw_bytes == all.nand_write_rmw_bytes);
	CHECK(sum.nand_write_wear_bytes == all.nand_write_wear_bytes);
	CHECK(!ow_ftl_check(ftl, &why));
}

/* Two owners on halves of the drive, after a fill without an owner. */
static struct ow_ftl *make_shared_drive(void)
{
	struct ow_ftl_workload fill = {.sequential = 1};
	struct ow_ftl *ftl = make_drive(0);
	uint64_t rng = 5;

	CHECK(!ow_ftl_run(ftl, &fill, PAGES));
	for (int i = 0; i < 4 * PAGES; i++) {
		write_page(ftl, 1, ow_rng_below(&rng, HALF), UNIT);
		if (i % 4 == 0)
			write_page(ftl, 2, HALF + i / 4 % HALF, UNIT);
	}
	return ftl;
}

static void check_shared_drive(void)
{
	struct ow_ftl *ftl = make_shared_drive();

	check_sums(ftl);
	CHECK(read_owner(ftl, 0).host_write_bytes == (uint64_t)PAGES * UNIT);
	CHECK(read_owner(ftl, 1).host_write_bytes == 4ULL * PAGES * UNIT);
	CHECK(read_owner(ftl, 2).host_write_bytes == (uint64_t)PAGES * UNIT);
	CHECK(read_owner(ftl, 1).nand_write_gc_bytes && read_owner(ftl, 2).nand_write_gc_bytes);
	CHECK(!read_owner(ftl, 3).nand_write_bytes);
	ow_ftl_destroy(ftl);
}

/* A loaded drive counts on as the saved one does. */
static void check_reload(void)
{
	struct ow_ftl *ftl = make_shared_drive(), *loaded;
	struct memory saved = {0}, one = {0}, two = {0};

	CHECK(!ow_ftl_save(ftl, memory_put, &saved) && !ow_ftl_load(&loaded, memory_get, &saved));
	for (int i = 0; i < PAGES; i++) {
		write_page(ftl, 1 + i % 3, i, UNIT);
		write_page(loaded, 1 + i % 3, i, UNIT);
	}
	check_sums(loaded);
	CHECK(!ow_ftl_save(ftl, memory_put, &one) && !ow_ftl_save(loaded, memory_put, &two));
	CHECK(one.len == two.len && !memcmp(one.data, two.data, one.len));
	free(saved.data);
	free(one.data);
	free(two.data);
	ow_ftl_destroy(ftl);
	ow_ftl_destroy(loaded);
}

/* A page in the buffer belongs to its last writer, also if another owner's write evicts it. */
static void check_buffer(void)
{
	struct ow_ftl *ftl = make_drive(8);

	write_page(ftl, 1, 0, UNIT);
	write_page(ftl, 2, 0, 512);
	write_page(ftl, 2, 1, 512);
	for (int page = 2; page < 10; page++)
		write_page(ftl, 3, page, UNIT);
	check_sums(ftl);
	CHECK(!read_owner(ftl, 1).nand_write_bytes);
	CHECK(read_owner(ftl, 1).host_write_bytes == UNIT);
	CHECK(read_owner(ftl, 2).nand_write_bytes == 2 * UNIT);
	CHECK(read_owner(ftl, 2).nand_write_rmw_bytes == UNIT - 512);
	CHECK(!read_owner(ftl, 3).nand_write_bytes);
	ow_ftl_destroy(ftl);
}

/* A drive without owners is saved in the first version, which older releases read. */
static void check_version(void)
{
	struct ow_ftl *ftl = make_drive(0);
	struct memory saved = {0};

	CHECK(!ow_ftl_set_owner(ftl, 0));
	CHECK(!ow_ftl_save(ftl, memory_put, &saved) && saved.data[8] == 1);
	saved.len = 0;
	CHECK(!ow_ftl_set_owner(ftl, 9));
	CHECK(!ow_ftl_save(ftl, memory_put, &saved) && saved.data[8] == 2);
	free(saved.data);
	ow_ftl_destroy(ftl);
}

int main(void)
{
	check_shared_drive();
	check_reload();
	check_buffer();
	check_version();
	return 0;
}
