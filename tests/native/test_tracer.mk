# The tracer's library, and the skeletons that bpf/ makes.
CFLAGS_test_tracer := -I$(ROOT)/build/bpf $(wildcard $(ROOT)/opwatch/_native/tracer*.c)
LIBS_test_tracer := -lbpf -lelf -lz
