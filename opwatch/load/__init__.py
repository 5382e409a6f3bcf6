"""Workloads as data, and their fio options."""
