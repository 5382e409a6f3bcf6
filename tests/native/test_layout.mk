# What decides where counters lie, alone.
CFLAGS_test_layout := -I$(ROOT)/build/bpf $(ROOT)/opwatch/_native/block/layout.c
