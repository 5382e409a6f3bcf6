/* SPDX-License-Identifier: MIT */
/* Read-only NVMe admin commands: Identify, and Get Log Page with Retain Asynchronous Event set.
 * All other commands are refused here, whatever the caller asks for. */
#ifndef OPWATCH_NVME_H
#define OPWATCH_NVME_H

#include <linux/nvme_ioctl.h>
#include <stdint.h>

#define OW_NVME_ALL_NAMESPACES 0xffffffffu
#define OW_NVME_IDENTIFY_BYTES 4096u
#define OW_NVME_LOG_MAX_BYTES  8192u

struct ow_nvme_log {
	uint8_t lid;
	uint8_t uuid_index;
	uint32_t nsid; /* 0: all; one namespace only for log D0h, which Amazon keeps per volume */
	uint16_t lsi;  /* log specific identifier, such as an endurance group */
	uint32_t len;  /* bytes, a multiple of 4 */
};

/* Returns 0 if the command may be sent, -EPERM otherwise. */
int ow_nvme_check_allowed(const struct nvme_admin_cmd *cmd);

/* Fill @cmd with a command that reads into @buf. Return 0 or -EINVAL. */
int ow_nvme_prepare_log(struct nvme_admin_cmd *cmd, const struct ow_nvme_log *log, void *buf);
int ow_nvme_prepare_identify(struct nvme_admin_cmd *cmd, uint8_t cns, uint32_t nsid, void *buf);

/* Send @cmd to a controller or namespace node. Returns 0, -errno, or a positive NVMe status. */
int ow_nvme_submit(int fd, struct nvme_admin_cmd *cmd);

#endif
