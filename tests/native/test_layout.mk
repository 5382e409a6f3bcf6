# Only the code that computes the layout.
CFLAGS_test_layout := -I$(ROOT)/build/bpf $(ROOT)/opwatch/_native/block/layout.c
