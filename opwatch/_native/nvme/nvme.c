// SPDX-License-Identifier: MIT
#include "nvme.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#define OPCODE_GET_LOG	0x02
#define OPCODE_IDENTIFY 0x06
#define LID_OF_A_VOLUME 0xd0

/* Without this bit the drive considers the event handled and clears it. */
#define RETAIN_EVENT (1u << 15)
#define LSP_MASK     (0x7fu << 8)
#define TIMEOUT_MS   10000

static int is_lid_allowed(uint8_t lid)
{
	return lid == 0x02 || lid == 0x05 || lid == 0x09 || lid == 0x22 || lid == 0x81 ||
	       lid >= 0xc0;
}

/* Allow structures that describe namespaces and controllers, and lists of them. */
static int is_cns_allowed(uint32_t cns)
{
	switch (cns) {
	case 0x00:
	case 0x01:
	case 0x02: /* active namespaces */
	case 0x10: /* allocated namespaces */
	case 0x11: /* one allocated namespace */
	case 0x13: /* controllers of the subsystem */
	case 0x16: /* namespace granularity list */
	case 0x17:
		return 1;
	default:
		return 0;
	}
}

/* Log specific parameters and offsets can make a drive write a log, so refuse them. */
static int is_log_allowed(const struct nvme_admin_cmd *cmd)
{
	uint32_t numd = (cmd->cdw10 >> 16) | (cmd->cdw11 & 0xffff) << 16;

	if (!is_lid_allowed(cmd->cdw10 & 0xff) || !(cmd->cdw10 & RETAIN_EVENT) ||
	    cmd->cdw10 & LSP_MASK)
		return 0;
	if (cmd->cdw12 || cmd->cdw13 || cmd->cdw14 & ~0x7fu || cmd->cdw15)
		return 0;
	if (cmd->nsid != OW_NVME_ALL_NAMESPACES && (cmd->cdw10 & 0xff) != LID_OF_A_VOLUME)
		return 0;
	return cmd->data_len <= OW_NVME_LOG_MAX_BYTES && (uint64_t)(numd + 1) * 4 == cmd->data_len;
}

static int is_identify_allowed(const struct nvme_admin_cmd *cmd)
{
	if (!is_cns_allowed(cmd->cdw10) || cmd->cdw11 || cmd->cdw12 || cmd->cdw13 || cmd->cdw14 ||
	    cmd->cdw15)
		return 0;
	return cmd->data_len == OW_NVME_IDENTIFY_BYTES;
}

int ow_nvme_check_allowed(const struct nvme_admin_cmd *cmd)
{
	int allowed = 0;

	if (cmd->flags || cmd->rsvd1 || cmd->cdw2 || cmd->cdw3 || cmd->metadata ||
	    cmd->metadata_len || !cmd->addr)
		return -EPERM;
	if (cmd->opcode == OPCODE_GET_LOG)
		allowed = is_log_allowed(cmd);
	else if (cmd->opcode == OPCODE_IDENTIFY)
		allowed = is_identify_allowed(cmd);
	return allowed ? 0 : -EPERM;
}

int ow_nvme_prepare_log(struct nvme_admin_cmd *cmd, const struct ow_nvme_log *log, void *buf)
{
	uint32_t numd;

	if (!log->len || log->len % 4 || log->len > OW_NVME_LOG_MAX_BYTES || log->uuid_index > 0x7f)
		return -EINVAL;
	numd = log->len / 4 - 1; /* zero-based count of dwords */
	memset(cmd, 0, sizeof(*cmd));
	cmd->opcode = OPCODE_GET_LOG;
	cmd->nsid = log->nsid ? log->nsid : OW_NVME_ALL_NAMESPACES;
	cmd->addr = (uintptr_t)buf;
	cmd->data_len = log->len;
	cmd->cdw10 = numd << 16 | RETAIN_EVENT | log->lid;
	cmd->cdw11 = (uint32_t)log->lsi << 16 | numd >> 16;
	cmd->cdw14 = log->uuid_index;
	cmd->timeout_ms = TIMEOUT_MS;
	return 0;
}

int ow_nvme_prepare_identify(struct nvme_admin_cmd *cmd, uint8_t cns, uint32_t nsid, void *buf)
{
	memset(cmd, 0, sizeof(*cmd));
	cmd->opcode = OPCODE_IDENTIFY;
	cmd->nsid = nsid;
	cmd->addr = (uintptr_t)buf;
	cmd->data_len = OW_NVME_IDENTIFY_BYTES;
	cmd->cdw10 = cns;
	cmd->timeout_ms = TIMEOUT_MS;
	return 0;
}

int ow_nvme_submit(int fd, struct nvme_admin_cmd *cmd)
{
	int ret = ow_nvme_check_allowed(cmd);

	if (ret)
		return ret;
	ret = ioctl(fd, NVME_IOCTL_ADMIN_CMD, cmd);
	return ret < 0 ? -errno : ret;
}
