# The tracer's library, and the skeletons built by bpf/.
TRACER_ROOMS := $(addprefix $(ROOT)/opwatch/_native/,common block discards history)
CFLAGS_test_tracer := -I$(ROOT)/build/bpf \
	$(foreach room,$(TRACER_ROOMS),$(filter-out $(room)/py_%,$(wildcard $(room)/*.c)))
LIBS_test_tracer := -lbpf -lelf -lz
