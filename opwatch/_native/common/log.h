/* SPDX-License-Identifier: MIT */
/* Collects libbpf's messages so that an error can include them. */
#ifndef OPWATCH_TRACER_LOG_H
#define OPWATCH_TRACER_LOG_H

#define OW_LOG_SIZE 65536

/* Start to collect messages of this thread into @log (OW_LOG_SIZE bytes); NULL stops. */
void ow_collect_log(char *log);

#endif
