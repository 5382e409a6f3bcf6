// SPDX-License-Identifier: MIT
/* blk_status_t numbers before and after v6.10, and their translation by the BPF programs. */
#include <linux/types.h>
#include <stdbool.h>

#include "check.h"
#include "abi/block.h"

#define OP_VALUE(name)		 name
#define HAS_ZONE_RESOURCE_STATUS has_zone_resource

enum {
	REQ_OP_READ,
	REQ_OP_WRITE,
	REQ_OP_FLUSH,
	REQ_OP_DISCARD,
	REQ_OP_SECURE_ERASE = 5,
	REQ_OP_WRITE_ZEROES = 9,
	REQ_OP_ZONE_APPEND = 13
};

static bool has_zone_resource;

#include "lib/op.h"

static void test_operations_are_classified(void)
{
	CHECK(classify_op(REQ_OP_ZONE_APPEND | 1 << 8) == OW_WRITE && classify_op(7) == OW_OTHER);
}

/* The numbers of the user side: opwatch/trace/derive.py. */
enum status {
	DEVICE_RESOURCE = 13,
	ZONE_OPEN = 14,
	ZONE_ACTIVE = 15,
	OFFLINE = 16,
	DURATION_LIMIT = 17,
	INVALID = 19
};

/* v6.10 removed BLK_STS_ZONE_RESOURCE: the values up to BLK_STS_DURATION_LIMIT fell by one. */
static void test_statuses_of_newer_kernels(void)
{
	has_zone_resource = false;
	for (int status = 0; status < OW_NR_STATUS; status++)
		CHECK(convert_status(status) == (__u32)status);
}

/* BLK_STS_OFFLINE is 17 from v5.18, BLK_STS_DURATION_LIMIT 18 from v6.5, both until v6.10. */
static void test_statuses_of_older_kernels(void)
{
	static const struct {
		int kernel;
		enum status shown;
	} rows[] = {
		{13, DEVICE_RESOURCE}, {14, ZONE_OPEN}, /* BLK_STS_ZONE_RESOURCE */
		{15, ZONE_OPEN},       {16, ZONE_ACTIVE}, {17, OFFLINE},
		{18, DURATION_LIMIT},  {19, INVALID},
	};

	has_zone_resource = true;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		CHECK(convert_status(rows[i].kernel) == rows[i].shown);
	for (int status = 0; status < 14; status++)
		CHECK(convert_status(status) == (__u32)status);
}

/* Older tracepoints report an errno. */
static void test_errnos_are_converted(void)
{
	for (int older = 0; older < 2; older++) {
		has_zone_resource = older;
		CHECK(convert_status(-EOPNOTSUPP) == 1 && convert_status(-ENOSPC) == 3);
		CHECK(convert_status(-ENODATA) == 7 && convert_status(-EIO) == 10);
	}
}

int main(void)
{
	test_operations_are_classified();
	test_statuses_of_newer_kernels();
	test_statuses_of_older_kernels();
	test_errnos_are_converted();
	return 0;
}
