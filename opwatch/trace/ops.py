"""What requests are called: their operations, and how they end."""

# As the kernel side does: enum ow_op of bpf/abi/block.h, in its order.
OPS = ("read", "write", "flush", "discard", "write_zeroes", "secure_erase", "other")

# blk_status_t as the newest kernels number it: status_of() of bpf/lib/op.h turns older numbers into
# these. The kernel has them as macros, so BTF cannot tell them.
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
