/* SPDX-License-Identifier: MIT */
/* The process that loads the BPF programs and reads their counters. */
#ifndef OPWATCH_BROKER_TRACING_H
#define OPWATCH_BROKER_TRACING_H

#include "packets.h"

/* Memory limit of the counters of all tracers together, in the kernel. */
#define OW_MAX_TRACER_BYTES (512ULL << 20)

/* Serve jobs until the end of the link. */
void ow_run_tracing(int link);

#endif
