DRIVE_CORE := $(ROOT)/opwatch/drive/server
CFLAGS_test_drive_core := -I$(DRIVE_CORE) -pthread
LIBS_test_drive_core := $(filter-out %/main.c %/fs.c %/reply.c %/options.c,\
	$(wildcard $(DRIVE_CORE)/*.c $(DRIVE_CORE)/*/*.c))
