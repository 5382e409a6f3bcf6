BROKER_FUZZED := $(ROOT)/tools/broker
CFLAGS_test_broker_fuzz := -I$(BROKER_FUZZED) -pthread -DOPWATCH_VERSION='"test"'
LIBS_test_broker_fuzz := $(filter-out %/main.c %/tracing.c %/listener.c,$(wildcard $(BROKER_FUZZED)/*.c)) \
	$(ROOT)/opwatch/_native/nvme/nvme.c
