/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Classifies a bio that writes. The function that the bio calls at its end names the submitter
 * exactly. Flags do not: checkpoints of ext4 carry those of its journal on 6.18, journal blocks
 * carry none on 5.10, and tree blocks of btrfs carry none on 6.1. Flags and pages decide only
 * where the function is unknown or shared.
 */
#ifndef OPWATCH_CLASS_H
#define OPWATCH_CLASS_H

#define HAS_FLAG(opf, name) ((opf) >> bpf_core_enum_value(enum req_flag_bits, name) & 1)

/* Inode numbers: of btrfs's tree blocks, and as mkfs.f2fs sets those of nodes and of metadata. */
#define BTRFS_BTREE_INO 1
#define F2FS_NODE_INO	1
#define F2FS_META_INO	2

static __always_inline __u32 find_rule(__u64 function)
{
	__u32 *rule = bpf_map_lookup_elem(&end_functions, &function);

	return rule ? *rule : OW_RULE_UNKNOWN;
}

/*
 * jbd2 writes its revoke records like any other buffer, but marks them with BH_JWrite, which
 * follows BH_JBD, the first private bit. A buffer that it copies into the journal has the bit
 * too, and is not written itself until the bit is cleared.
 */
static __always_inline bool is_journal_buffer(struct bio *bio)
{
	struct buffer_head *buffer = (void *)BPF_CORE_READ(bio, bi_private);
	__u32 rule = find_rule((__u64)BPF_CORE_READ(buffer, b_end_io));
	__u64 jwrite = bpf_core_enum_value(enum bh_state_bits, BH_PrivateStart) + 1;

	if (rule == OW_CLASS_METADATA)
		return BPF_CORE_READ(buffer, b_state) >> jwrite & 1;
	return rule == OW_CLASS_JOURNAL;
}

static __always_inline __u32 classify_page(const struct page_facts *page, bool has_filesystem)
{
	if (page->kind == PAGE_FILE)
		return OW_CLASS_DATA;
	if (!has_filesystem)
		return OW_CLASS_RAW;
	return page->kind == PAGE_DEVICE ? OW_CLASS_METADATA : OW_CLASS_OTHER;
}

static __always_inline __u32 classify_file(const struct page_facts *page, __u32 rule)
{
	if (page->kind != PAGE_FILE)
		return OW_CLASS_DATA;
	if (rule == OW_RULE_BTRFS)
		return page->ino == BTRFS_BTREE_INO ? OW_CLASS_METADATA : OW_CLASS_DATA;
	if (page->ino == F2FS_NODE_INO)
		return OW_CLASS_NODE;
	return page->ino == F2FS_META_INO ? OW_CLASS_METADATA : OW_CLASS_DATA;
}

static __always_inline __u32 classify_by_rule(struct bio *bio, __u32 rule, bool has_filesystem)
{
	struct page_facts page = read_page_facts(bio);

	if (rule == OW_RULE_BTRFS || rule == OW_RULE_F2FS)
		return classify_file(&page, rule);
	if (page.kind == PAGE_ZEROES)
		return OW_CLASS_ZEROES;
	/* The pages are a program's buffer, which can be a mapped file, or the kernel's. */
	if (rule == OW_RULE_WAIT) {
		if (page.kind == PAGE_PROGRAM || page.kind == PAGE_FILE || !has_filesystem)
			return OW_CLASS_RAW;
		return OW_CLASS_OTHER;
	}
	return classify_page(&page, has_filesystem);
}

static __always_inline __u32 classify_write(struct bio *bio, __u32 opf, bool has_filesystem,
					    bool raw)
{
	__u32 rule;

	if (HAS_FLAG(opf, __REQ_SWAP))
		return OW_CLASS_SWAP;
	rule = find_rule((__u64)READ(raw, bio, bi_end_io));
	if (rule < OW_NR_CLASSES)
		return rule;
	if (rule == OW_RULE_BUFFER && is_journal_buffer(bio))
		return OW_CLASS_JOURNAL;
	if (rule != OW_RULE_F2FS && has_filesystem && HAS_FLAG(opf, __REQ_META))
		return OW_CLASS_METADATA;
	return classify_by_rule(bio, rule, has_filesystem);
}

#endif
