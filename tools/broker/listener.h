/* SPDX-License-Identifier: MIT */
/* The socket that clients connect to. */
#ifndef OPWATCH_BROKER_LISTENER_H
#define OPWATCH_BROKER_LISTENER_H

#include "peers.h"

/* Take over the socket that systemd passed. Returns a descriptor, -ENOENT if it passed none, or
 * -EINVAL if it passed another kind. */
int ow_take_listener(void);

/* Bind a socket at @path that the first allowed group may connect to. Replaces a socket that no
 * process listens on. Returns a descriptor, -EADDRINUSE if another broker listens there, -EEXIST
 * for a file of another kind, or -errno. */
int ow_open_listener(const char *path, const struct ow_allowed *allowed);

#endif
