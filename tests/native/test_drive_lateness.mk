DRIVE_LATENESS := $(ROOT)/opwatch/drive/server
CFLAGS_test_drive_lateness := -I$(DRIVE_LATENESS) -pthread
LIBS_test_drive_lateness := $(DRIVE_LATENESS)/lateness.c $(DRIVE_LATENESS)/timer.c
