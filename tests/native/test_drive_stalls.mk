DRIVE_STALLS := $(ROOT)/opwatch/drive/server
CFLAGS_test_drive_stalls := -I$(DRIVE_STALLS) -pthread
LIBS_test_drive_stalls := $(filter-out %/main.c %/fs.c %/reply.c %/options.c,\
	$(wildcard $(DRIVE_STALLS)/*.c $(DRIVE_STALLS)/*/*.c))
