"""The kernel test bench: boots stock kernels in QEMU and runs commands of this checkout in them."""
