CFLAGS_test_operation := $(ROOT)/opwatch/_native/counts/operation.c
