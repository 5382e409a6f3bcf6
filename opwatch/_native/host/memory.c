// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "memory.h"

#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

static int unmap_constant_parts(struct dl_phdr_info *info, size_t size, void *context)
{
	unsigned long page = sysconf(_SC_PAGESIZE), begin, end;
	const ElfW(Phdr) * part;

	(void)size;
	(void)context;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		part = &info->dlpi_phdr[i];
		if (part->p_type != PT_LOAD || part->p_flags & PF_W)
			continue;
		begin = (info->dlpi_addr + part->p_vaddr) & ~(page - 1);
		end = (info->dlpi_addr + part->p_vaddr + part->p_memsz + page - 1) & ~(page - 1);
		madvise((void *)begin, end - begin, MADV_DONTNEED);
	}
	return 0;
}

void ow_release_memory(void)
{
	malloc_trim(0);
	dl_iterate_phdr(unmap_constant_parts, NULL);
}
