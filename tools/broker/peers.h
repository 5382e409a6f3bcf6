/* SPDX-License-Identifier: MIT */
/* Who may use the broker: root, and the configured users and groups. */
#ifndef OPWATCH_BROKER_PEERS_H
#define OPWATCH_BROKER_PEERS_H

#include <stdbool.h>
#include <sys/types.h>

#define OW_MAX_ALLOWED 16

struct ow_allowed {
	uid_t users[OW_MAX_ALLOWED];
	gid_t groups[OW_MAX_ALLOWED];
	int nr_users;
	int nr_groups;
};

/* Add a user or group by number, or by name in /etc/passwd or /etc/group. Returns 0, -ENOENT for an
 * unknown name, or -E2BIG. Name services are not asked: their libraries would stay in memory. */
int ow_allow_user(struct ow_allowed *allowed, const char *name);
int ow_allow_group(struct ow_allowed *allowed, const char *name);

/* Return true if the process that connected this socket may use the broker. @user receives its
 * user. */
bool ow_is_allowed(const struct ow_allowed *allowed, int socket, uid_t *user);

#endif
