/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Finds what the first page of a bio belongs to. */
#ifndef OPWATCH_PAGE_H
#define OPWATCH_PAGE_H

#define S_IFMT	0170000
#define S_IFBLK 0060000

enum page_kind {
	PAGE_UNKNOWN, /* no mapping: a page of the kernel, a bounce page, or a compressed one */
	PAGE_ZEROES,
	PAGE_PROGRAM, /* anonymous memory of a program */
	PAGE_DEVICE,  /* page cache of a block device */
	PAGE_FILE,
};

struct page_facts {
	enum page_kind kind;
	__u64 ino; /* of the file */
};

/* Return the first page of the compound page that the bio's next page is in. */
static __always_inline struct page *read_first_page(struct bio *bio)
{
	void *vecs = BPF_CORE_READ(bio, bi_io_vec);
	__u64 index = BPF_CORE_READ(bio, bi_iter.bi_idx), head = 0;
	struct bio_vec *vec = vecs + index * bpf_core_type_size(struct bio_vec);
	struct page *page = BPF_CORE_READ(vec, bv_page);

	if (bpf_core_field_exists(page->compound_head))
		head = BPF_CORE_READ(page, compound_head);
	return head & 1 ? (struct page *)(head - 1) : page;
}

static __always_inline __u64 read_mapping(struct page *page)
{
	if (bpf_core_field_exists(struct folio, mapping))
		return (__u64)BPF_CORE_READ((struct folio *)page, mapping);
	return (__u64)BPF_CORE_READ(page, mapping);
}

/* The flags are the first member of a page; their type differs between kernels. */
static __always_inline bool is_reserved(struct page *page)
{
	__u64 flags = 0;

	bpf_probe_read_kernel(&flags, sizeof(flags), page);
	return flags >> bpf_core_enum_value(enum pageflags, PG_reserved) & 1;
}

/* The low two bits of a mapping mark anonymous and movable pages. The kernel's page of zeroes is
 * the only reserved page without a mapping that is written. */
static __always_inline struct page_facts read_page_facts(struct bio *bio)
{
	struct page *page = read_first_page(bio);
	struct page_facts facts = {.kind = PAGE_UNKNOWN};
	__u64 mapping = read_mapping(page);
	struct inode *host;

	if (mapping & 3) {
		facts.kind = PAGE_PROGRAM;
	} else if (mapping) {
		host = BPF_CORE_READ((struct address_space *)mapping, host);
		facts.kind =
			(BPF_CORE_READ(host, i_mode) & S_IFMT) == S_IFBLK ? PAGE_DEVICE : PAGE_FILE;
		facts.ino = BPF_CORE_READ(host, i_ino);
	} else if (is_reserved(page)) {
		facts.kind = PAGE_ZEROES;
	}
	return facts;
}

#endif
