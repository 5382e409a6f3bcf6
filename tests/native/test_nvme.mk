# The NVMe library alone.
CFLAGS_test_nvme := $(ROOT)/opwatch/_native/nvme/nvme.c
