DRIVE_STATE := $(ROOT)/opwatch/drive/server
CFLAGS_test_drive_state_fuzz := -I$(DRIVE_STATE) -pthread
LIBS_test_drive_state_fuzz := $(filter-out %/main.c %/fs.c %/reply.c %/options.c,\
	$(wildcard $(DRIVE_STATE)/*.c $(DRIVE_STATE)/*/*.c))
