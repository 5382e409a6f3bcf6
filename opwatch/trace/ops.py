"""What the kernel side calls the operations: enum ow_op of bpf/abi/block.h, in its order."""

OPS = ("read", "write", "flush", "discard", "write_zeroes", "secure_erase", "other")
