/* SPDX-License-Identifier: MIT */
/*
 * The protocol of opwatch-broker: one packet per request and one per reply, on a Unix socket of
 * type SOCK_SEQPACKET, in the byte order of the machine. The size of a request follows from its
 * kind. The broker disconnects a client that sends any other size, an unknown kind, another
 * version, or a reserved field that is not 0. opwatch/collectors/broker/protocol.py mirrors this
 * file.
 */
#ifndef OPWATCH_BROKER_PROTOCOL_H
#define OPWATCH_BROKER_PROTOCOL_H

#include <linux/types.h>

#include "_native/block/tracer.h"

#define OW_BROKER_VERSION 1
#define OW_BROKER_SOCKET  "/run/opwatch/broker.sock"

enum ow_request_kind {
	OW_HELLO = 1,
	OW_OPEN_TRACER,
	OW_CLOSE_TRACER,
	OW_READ_SAMPLE,
	OW_READ_OWNERS,
	OW_EVICT_OWNERS,
	OW_READ_PROGRAMS,
	OW_GET_LOG,
	OW_IDENTIFY,
	OW_RUN_SMARTCTL,
	OW_NR_KINDS,
};

struct ow_request_header {
	__u16 version;
	__u16 kind;
	__u32 tag; /* copied to the reply */
};

/* A request without arguments: OW_HELLO. */
struct ow_plain_request {
	struct ow_request_header header;
};

/* The arguments of ow_tracer_open(). Owners are cgroups or none, and slow requests are not
 * reported: the client's user must not see the processes of other users. */
struct ow_open_request {
	struct ow_request_header header;
	__u32 nr_targets;
	__u32 nr_disks;
	__u32 nr_stamps;
	__u32 nr_bios;
	__u32 nr_programs;
	__u32 queue_time; /* 0 or 1 */
	__u32 by;	  /* OW_BY_NONE or OW_BY_CGROUP */
	__u32 reserved;
	struct ow_target targets[OW_MAX_TARGETS];
	struct ow_disk_key disks[OW_MAX_TARGETS];
	struct ow_program_spec programs[OW_MAX_PROGRAMS];
};

/* A request about an open tracer. @target: OW_READ_SAMPLE and OW_READ_OWNERS. @offset:
 * OW_READ_OWNERS continues the last list there, because a reply may have a part of it only; 0 reads
 * a new list. The list of OW_EVICT_OWNERS is continued as that of target OW_EVICTED_OWNERS. */
#define OW_EVICTED_OWNERS 0xffffffffu
struct ow_tracer_request {
	struct ow_request_header header;
	__u32 handle;
	__u32 target;
	__u32 offset;
	__u32 reserved;
};

struct ow_evict_request {
	struct ow_request_header header;
	__u32 handle;
	__u32 keep;
	__u32 max;
	__u32 reserved;
	__u64 idle_ns;
};

/* A command for the drive of a whole disk. Fields that the kind does not use are 0. */
struct ow_drive_request {
	struct ow_request_header header;
	__u32 major;
	__u32 minor;
	__u32 number; /* log page or Identify structure */
	__u32 length; /* bytes of the log page */
	__u32 nsid;
	__u16 lsi;
	__u8 uuid_index;
	__u8 reserved;
};

/* Every reply starts with this header; @length bytes follow. */
struct ow_reply {
	__u32 tag;
	__u32 error;  /* 0 or an errno */
	__u32 status; /* NVMe status, exit status of smartctl, handle of a tracer, or total of a
			 list */
	__u32 length;
};

/* Reply to OW_HELLO. */
struct ow_hello {
	__u32 version;
	__u32 sample_bytes; /* sizeof(struct ow_sample) */
	__u32 op_bytes;	    /* sizeof(struct ow_op_sample) */
	__u32 owner_bytes;  /* sizeof(struct ow_owner_sample) */
	__u64 capabilities; /* 1 << CAP_... that the broker has; others' requests fail with EPERM */
	char release[24];
};

/* Reply to OW_OPEN_TRACER: this, and after an error the end of the verifier's log instead. */
#define OW_LOG_TAIL 8192
struct ow_opened {
	__u32 nr_lanes;
	__u32 nr_cpus;
	__u32 max_owners;
	__u32 throttle_error; /* errno if the kernel refuses the program for the time in io.max */
};

/* Reply to OW_READ_SAMPLE: this, and a struct ow_op_sample per bit set in @ops, lowest first.
 * Operations without any request since the tracer was opened are left out. */
struct ow_packed_sample {
	__u64 begin_ns;
	__u64 end_ns;
	__u32 ops;
	__u32 reserved;
};

/* The most bytes behind the header of a reply. */
#define OW_REPLY_MAX (sizeof(struct ow_packed_sample) + OW_NR_OPS * sizeof(struct ow_op_sample))

/* Any request; for buffers. */
union ow_request {
	struct ow_request_header header;
	struct ow_open_request open;
	struct ow_tracer_request tracer;
	struct ow_evict_request evict;
	struct ow_drive_request drive;
};

/* The most requests of one client without a reply, and the most tracers of one and of all. */
#define OW_MAX_CALLS_OF_CLIENT	 16
#define OW_MAX_TRACERS_OF_CLIENT 8
#define OW_MAX_TRACERS		 16
#define OW_MAX_CLIENTS		 64

#endif
