/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Maps the kernel's operations and statuses to those of user space. */
#ifndef OPWATCH_OP_H
#define OPWATCH_OP_H

static __always_inline __u32 classify_op(__u32 cmd_flags)
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

/* Return the start sector of a request's sequential successor. A zone append has the start of
 * its zone as its sector, and the drive writes it at the zone's write pointer. */
static __always_inline __u64 next_sector_after(__u32 cmd_flags, __u64 sector, __u32 bytes)
{
	if ((cmd_flags & 0xff) == OP_VALUE(REQ_OP_ZONE_APPEND))
		return sector;
	return sector + (bytes >> 9);
}

#define STATUS_ZONE_RESOURCE  14
#define STATUS_DURATION_LIMIT 17

/* Return the blk_status_t of a tracepoint's status: the status itself in the newest kernels'
 * numbering, or the errno converted by the kernel's own table. */
static __always_inline __u32 convert_status(__s32 error)
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
	/* The kernel maps every other errno to BLK_STS_IOERR. */
	if (error < 0)
		return 10;
	if (HAS_ZONE_RESOURCE_STATUS && error > STATUS_ZONE_RESOURCE &&
	    error <= STATUS_DURATION_LIMIT + 1)
		return error - 1;
	return error;
}

#endif
