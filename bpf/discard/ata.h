/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Trims as libata builds them from SCSI commands for a drive: two commands, two stages. */
#ifndef OPWATCH_DISCARD_ATA_H
#define OPWATCH_DISCARD_ATA_H

#define ATA_DSM		     0x06
#define ATA_FPDMA_SEND	     0x64
#define ATA_FPDMA_SUBCOMMAND 0x1f /* mask of hob_nsect: 0 is DSM */

/* Ignores commands that no discard request asked for, such as commands from user space. */
static __always_inline int on_ata(struct ata_queued_cmd *qc, __u8 stage, bool is_done)
{
	struct ow_flow_key key = {.stage = stage, .sender = OW_SENDER_OTHER};
	struct scsi_cmnd *scsi;
	struct request *rq;
	struct gendisk *disk;
	__u8 command;

	/* libata is neither in the kernel nor was it a loaded module when our programs were
	 * loaded. */
	if (!bpf_core_field_exists(qc->scsicmd))
		return 0;
	command = BPF_CORE_READ(qc, tf.command);
	if (command != ATA_DSM &&
	    (command != ATA_FPDMA_SEND || BPF_CORE_READ(qc, tf.hob_nsect) & ATA_FPDMA_SUBCOMMAND))
		return 0;
	scsi = BPF_CORE_READ(qc, scsicmd);
	if (!scsi)
		return 0;
	rq = (void *)scsi - bpf_core_type_size(struct request);
	key.op = classify_discard(BPF_CORE_READ(rq, cmd_flags));
	disk = BPF_CORE_READ(rq, q, disk);
	if (key.op == OW_NR_OPS || !disk)
		return 0;
	key.status = is_done ? BPF_CORE_READ(qc, err_mask) : command;
	set_key_disk(&key, disk);
	add_bytes(&key, BPF_CORE_READ(rq, __data_len));
	return 0;
}

SEC("raw_tp/ata_qc_issue")
int discard_ata(__u64 *ctx)
{
	return on_ata((struct ata_queued_cmd *)ctx[0], OW_ATA_COMMAND, false);
}

SEC("raw_tp/ata_qc_complete_done")
int discard_ata_done(__u64 *ctx)
{
	return on_ata((struct ata_queued_cmd *)ctx[0], OW_ATA_DONE, true);
}

SEC("raw_tp/ata_qc_complete_failed")
int discard_ata_failed(__u64 *ctx)
{
	return on_ata((struct ata_queued_cmd *)ctx[0], OW_ATA_DONE, true);
}

#endif
