/* SPDX-License-Identifier: MIT */
#ifndef OPWATCH_VM_AGENT_H
#define OPWATCH_VM_AGENT_H

/* PID 1 must not return: says why on the console and switches the machine off. */
void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Loads the modules, enters the host's file system and mounts what a userspace expects. */
void boot(void);

#endif
