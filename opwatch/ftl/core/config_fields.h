/* SPDX-License-Identifier: MIT */
/*
 * Every field of struct ow_ftl_config, in order, for Python's setting names and for saved drives.
 * Any change here needs a new OW_STATE_VERSION.
 */
#ifndef OPWATCH_FTL_CONFIG_FIELDS_H
#define OPWATCH_FTL_CONFIG_FIELDS_H

#define OW_FTL_CONFIG_FIELDS(field)                                                                \
	field(user_bytes), field(physical_bytes), field(superblock_bytes), field(iu_bytes),        \
		field(reserve_superblocks), field(policy), field(policy_arg),                      \
		field(gc_low_superblocks), field(gc_high_superblocks), field(gc_idle_superblocks), \
		field(gc_frontier), field(streams), field(hot_cold), field(wear_spread),           \
		field(endurance_cycles), field(erase_limit), field(dies), field(buffer_bytes),     \
		field(plp), field(slc_bytes), field(slc_dynamic), field(slc_bits),                 \
		field(slc_full), field(trim_mode), field(write_zeroes_unmaps),                     \
		field(idle_page_ns), field(seed), field(tie)

#endif
