/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What an operation and a status are called on the user side. */
#ifndef OPWATCH_OP_H
#define OPWATCH_OP_H

static __always_inline __u32 op_of(__u32 cmd_flags)
{
	__u32 op = cmd_flags & 0xff; /* REQ_OP_BITS is 8 in every kernel we know */

	if (op == OP_VALUE(REQ_OP_READ))
		return OW_READ;
	if (op == OP_VALUE(REQ_OP_WRITE) || op == OP_VALUE(REQ_OP_ZONE_APPEND))
		return OW_WRITE;
	if (op == OP_VALUE(REQ_OP_FLUSH))
		return OW_FLUSH;
	if (op == OP_VALUE(REQ_OP_DISCARD))
		return OW_DISCARD;
	if (op == OP_VALUE(REQ_OP_WRITE_ZEROES))
		return OW_WRITE_ZEROES;
	if (op == OP_VALUE(REQ_OP_SECURE_ERASE))
		return OW_SECURE_ERASE;
	return OW_OTHER;
}

/*
 * Where a sequential successor of a request starts. A zone append names the start of its zone, and
 * the drive writes it where the last one ended.
 */
static __always_inline __u64 next_sector(__u32 cmd_flags, __u64 sector, __u32 bytes)
{
	if ((cmd_flags & 0xff) == OP_VALUE(REQ_OP_ZONE_APPEND))
		return sector;
	return sector + (bytes >> 9);
}

#define STATUS_ZONE_RESOURCE  14
#define STATUS_DURATION_LIMIT 17

/*
 * blk_status_t for what the tracepoint said: itself as the newest kernels number it, or by the
 * kernel's own table from an errno.
 */
static __always_inline __u32 status_of(__s32 error)
{
	switch (error) {
	case -95: /* EOPNOTSUPP */
		return 1;
	case -110: /* ETIMEDOUT */
		return 2;
	case -28: /* ENOSPC */
		return 3;
	case -67: /* ENOLINK */
		return 4;
	case -121: /* EREMOTEIO */
		return 5;
	case -52: /* EBADE */
		return 6;
	case -61: /* ENODATA */
		return 7;
	case -84: /* EILSEQ */
		return 8;
	case -12: /* ENOMEM */
		return 9;
	case -11: /* EAGAIN */
		return 12;
	}
	/* BLK_STS_IOERR is the kernel's answer to every other errno. */
	if (error < 0)
		return 10;
	if (HAS_ZONE_RESOURCE_STATUS && error > STATUS_ZONE_RESOURCE &&
	    error <= STATUS_DURATION_LIMIT + 1)
		return error - 1;
	return error;
}

#endif
