DRIVE_TIMES := $(ROOT)/opwatch/drive/server
CFLAGS_test_drive_times := -I$(DRIVE_TIMES) -pthread
LIBS_test_drive_times := $(DRIVE_TIMES)/response_times.c $(DRIVE_TIMES)/latency_pages.c
