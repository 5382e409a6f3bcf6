/* SPDX-License-Identifier: MIT */
/* Whole disks, found by their numbers in sysfs. */
#ifndef OPWATCH_BROKER_DISKS_H
#define OPWATCH_BROKER_DISKS_H

#include "protocol.h"

#define OW_DISK_NAME 32

/* Find the kernel's name of a whole disk. Returns 0, -ENODEV if no disk has these numbers, or
 * -ENOTBLK for a partition. Opens no device. */
int ow_find_disk(__u32 major, __u32 minor, char name[OW_DISK_NAME]);

/* Open a whole disk for reading, and make sure that the node in /dev is this disk. Returns a
 * descriptor or -errno. May block for as long as the disk does. */
int ow_open_disk(__u32 major, __u32 minor);

#endif
