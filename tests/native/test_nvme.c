// SPDX-License-Identifier: MIT
/* The allow-list of NVMe admin commands passes the listed commands and refuses all others. */
#include "check.h"

#include <fcntl.h>
#include <unistd.h>

#include "_native/nvme/nvme.h"

static unsigned char page[OW_NVME_LOG_MAX_BYTES];

static struct nvme_admin_cmd make_log_command(uint8_t lid)
{
	struct ow_nvme_log log = {.lid = lid, .len = 512};
	struct nvme_admin_cmd cmd;

	CHECK(!ow_nvme_prepare_log(&cmd, &log, page));
	return cmd;
}

static struct nvme_admin_cmd make_identify_command(uint8_t cns)
{
	struct nvme_admin_cmd cmd;

	CHECK(!ow_nvme_prepare_identify(&cmd, cns, 1, page));
	return cmd;
}

static void test_only_listed_log_pages_are_allowed(void)
{
	int lid, allowed = 0;

	for (lid = 0; lid < 256; lid++) {
		struct nvme_admin_cmd cmd = make_log_command(lid);

		allowed += !ow_nvme_check_allowed(&cmd);
	}
	CHECK(allowed == 5 + 64);
}

static void test_every_other_opcode_is_refused(void)
{
	int opcode;

	for (opcode = 0; opcode < 256; opcode++) {
		struct nvme_admin_cmd log = make_log_command(0x02),
				      identify = make_identify_command(1);

		log.opcode = identify.opcode = opcode;
		CHECK((ow_nvme_check_allowed(&log) == 0) == (opcode == 0x02));
		CHECK((ow_nvme_check_allowed(&identify) == 0) == (opcode == 0x06));
	}
}

static void test_only_listed_identify_structures_are_allowed(void)
{
	int cns, allowed = 0;

	for (cns = 0; cns < 256; cns++) {
		struct nvme_admin_cmd cmd = make_identify_command(cns);

		allowed += !ow_nvme_check_allowed(&cmd);
	}
	CHECK(allowed == 8);
}

/* Flip each bit of an allowed command. Only bits in a few harmless fields may be accepted. */
static void test_flipped_bits_are_refused(void)
{
	size_t bit;

	for (bit = 0; bit < 8 * sizeof(struct nvme_admin_cmd); bit++) {
		struct nvme_admin_cmd cmd = make_log_command(0x02);
		uint32_t lsi, uuid;

		((unsigned char *)&cmd)[bit / 8] ^= 1u << bit % 8;
		if (ow_nvme_check_allowed(&cmd))
			continue;
		lsi = cmd.cdw11 >> 16;
		uuid = cmd.cdw14 & 0x7f;
		/* May differ: log page, group, UUID index, buffer address, timeout, result. */
		CHECK(cmd.opcode == 0x02 && cmd.nsid == OW_NVME_ALL_NAMESPACES);
		CHECK(cmd.cdw10 >> 15 == (127u << 1 | 1) && cmd.data_len == 512);
		CHECK(cmd.cdw11 == lsi << 16 && cmd.cdw14 == uuid);
		CHECK(!cmd.cdw12 && !cmd.cdw13 && !cmd.cdw15 && !cmd.cdw2 && !cmd.cdw3);
	}
}

/* Only Amazon's page may be read per namespace; all other pages count the whole drive. */
static void test_only_amazon_page_is_per_namespace(void)
{
	int lid;

	for (lid = 0; lid < 256; lid++) {
		struct ow_nvme_log log = {.lid = lid, .len = 8192, .nsid = 1};
		struct nvme_admin_cmd cmd;

		CHECK(!ow_nvme_prepare_log(&cmd, &log, page));
		CHECK(cmd.nsid == 1 && (ow_nvme_check_allowed(&cmd) == 0) == (lid == 0xd0));
	}
}

static void test_invalid_lengths_are_refused(void)
{
	struct ow_nvme_log log = {.lid = 0x02};
	struct nvme_admin_cmd cmd;
	uint32_t wrong[] = {0, 1, 510, OW_NVME_LOG_MAX_BYTES + 4, UINT32_MAX};
	size_t i;

	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		log.len = wrong[i];
		CHECK(ow_nvme_prepare_log(&cmd, &log, page) == -EINVAL);
	}
	cmd = make_log_command(0x02);
	cmd.data_len = 1024; /* the drive might write a different length than the buffer's */
	CHECK(ow_nvme_check_allowed(&cmd) == -EPERM);
	log.len = 512;
	log.uuid_index = 0x80;
	CHECK(ow_nvme_prepare_log(&cmd, &log, page) == -EINVAL);
}

static void test_refused_commands_do_not_reach_the_kernel(void)
{
	struct nvme_admin_cmd cmd = make_log_command(0x02);
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0);
	CHECK(ow_nvme_submit(fd, &cmd) == -ENOTTY);
	CHECK(ow_nvme_submit(-1, &cmd) == -EBADF);
	cmd.opcode = 0x80; /* Format NVM */
	CHECK(ow_nvme_submit(-1, &cmd) == -EPERM);
	close(fd);
}

int main(void)
{
	test_only_listed_log_pages_are_allowed();
	test_every_other_opcode_is_refused();
	test_only_listed_identify_structures_are_allowed();
	test_flipped_bits_are_refused();
	test_only_amazon_page_is_per_namespace();
	test_invalid_lengths_are_refused();
	test_refused_commands_do_not_reach_the_kernel();
	return 0;
}
