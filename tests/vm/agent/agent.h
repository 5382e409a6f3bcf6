/* SPDX-License-Identifier: MIT */
#ifndef OPWATCH_VM_AGENT_H
#define OPWATCH_VM_AGENT_H

/* Print the reason on the console and power off, because PID 1 must not return. */
void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Load the modules, enter the host's file system and mount the usual pseudo file systems. */
void boot(void);

#endif
