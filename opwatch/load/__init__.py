"""Workloads as data, and the fio options that run them."""
