/* SPDX-License-Identifier: MIT */
/* Keeps what libbpf says while it works for us, so that an error can carry it. */
#ifndef OPWATCH_TRACER_LOG_H
#define OPWATCH_TRACER_LOG_H

#define OW_LOG_SIZE 65536

/* Collect into @log (OW_LOG_SIZE bytes) from now on in this thread; NULL stops. */
void ow_log_begin(char *log);

#endif
