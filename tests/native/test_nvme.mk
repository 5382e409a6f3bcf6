# Only the NVMe library.
CFLAGS_test_nvme := $(ROOT)/opwatch/_native/nvme/nvme.c
