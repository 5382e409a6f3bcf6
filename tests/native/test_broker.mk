# The server, and the processes of drives. The process of tracers needs the kernel.
BROKER := $(ROOT)/tools/broker
CFLAGS_test_broker := -I$(BROKER) -pthread -DOPWATCH_VERSION='"test"'
LIBS_test_broker := $(filter-out %/main.c %/tracing.c %/listener.c,$(wildcard $(BROKER)/*.c)) \
	$(ROOT)/opwatch/_native/nvme/nvme.c
