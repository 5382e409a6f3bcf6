DRIVE := $(ROOT)/opwatch/drive/server
CFLAGS_test_drive_pages := -I$(DRIVE)
LIBS_test_drive_pages := $(DRIVE)/pages.c $(DRIVE)/identify.c $(DRIVE)/thermal.c
