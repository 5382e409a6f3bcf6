"""Kernel test bench: boots stock kernels in QEMU and runs commands from this checkout."""
