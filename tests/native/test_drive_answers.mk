DRIVE_ANSWERS := $(ROOT)/opwatch/drive/server
CFLAGS_test_drive_answers := -I$(DRIVE_ANSWERS) -pthread
LIBS_test_drive_answers := $(DRIVE_ANSWERS)/answers.c $(DRIVE_ANSWERS)/later.c
