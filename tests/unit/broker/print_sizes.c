// SPDX-License-Identifier: MIT
/* Prints sizes and offsets for test_protocol.py. */
#include <stdio.h>
#include <stddef.h>
#include "protocol.h"
int main(void)
{
	printf("%zu %zu %zu %zu %zu %zu %zu %zu\n", sizeof(struct ow_plain_request),
	       sizeof(struct ow_open_request), sizeof(struct ow_tracer_request),
	       sizeof(struct ow_evict_request), sizeof(struct ow_drive_request),
	       sizeof(struct ow_program_info), sizeof(struct ow_owner_sample),
	       sizeof(struct ow_reply) + OW_REPLY_MAX);
	printf("%zu %zu\n", offsetof(struct ow_open_request, disks),
	       offsetof(struct ow_open_request, programs));
	return 0;
}
