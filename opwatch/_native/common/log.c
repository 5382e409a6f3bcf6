// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "log.h"

#include <bpf/libbpf.h>
#include <stdio.h>
#include <string.h>

#include "cleanup.h"

static __thread char *current_log;

/* The end of a verifier log has the reason, so a full log drops its beginning. */
static void append_text(const char *text)
{
	size_t used = strlen(current_log), length = strlen(text);
	size_t room = OW_LOG_SIZE - 1;

	if (length > room) {
		text += length - room;
		length = room;
	}
	if (used + length > room) {
		memmove(current_log, current_log + used + length - room, room - length);
		used = room - length;
	}
	memcpy(current_log + used, text, length + 1);
}

static int collect_message(enum libbpf_print_level level, const char *format, va_list args)
{
	_cleanup_free_ char *text = NULL;

	if (level == LIBBPF_DEBUG || !current_log)
		return 0;
	if (vasprintf(&text, format, args) < 0)
		return 0;
	append_text(text);
	return 0;
}

void ow_collect_log(char *log)
{
	if (log)
		log[0] = '\0';
	current_log = log;
	libbpf_set_print(collect_message);
}
