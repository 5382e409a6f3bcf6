"""Names of operations and of the status of requests."""

# In the order of enum ow_op in bpf/abi/block.h.
OPS = ("read", "write", "flush", "discard", "write_zeroes", "secure_erase", "other")

# blk_status_t in the newest kernels' numbering; convert_status() in bpf/lib/op.h converts older numbers. The
# kernel defines the numbers as macros, which BTF does not contain.
STATUS_NAMES = {
    1: "not supported",
    2: "timeout",
    3: "no space",
    4: "transport",
    5: "target",
    6: "reservation conflict",
    7: "medium",
    8: "protection",
    9: "resource",
    10: "I/O",
    11: "dm requeue",
    12: "again",
    13: "device resource",
    14: "zone resource",
    15: "zone resource",
    16: "offline",
    17: "duration limit",
    19: "invalid",
}
