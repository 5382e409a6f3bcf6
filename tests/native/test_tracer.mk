# The tracer's library, and the skeletons built by bpf/.
TRACER_FOLDERS := $(addprefix $(ROOT)/opwatch/_native/,common block discards history writes)
CFLAGS_test_tracer := -I$(ROOT)/build/bpf \
	$(foreach folder,$(TRACER_FOLDERS),$(filter-out $(folder)/py_%,$(wildcard $(folder)/*.c)))
LIBS_test_tracer := -lbpf -lelf -lz
