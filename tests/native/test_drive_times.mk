DRIVE_TIMES := $(ROOT)/opwatch/drive/server/latency
CFLAGS_test_drive_times := -I$(DRIVE_TIMES) -pthread
LIBS_test_drive_times := $(DRIVE_TIMES)/times.c $(DRIVE_TIMES)/pages.c
