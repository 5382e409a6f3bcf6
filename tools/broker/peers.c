// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "peers.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* More groups than this are not looked at. */
#define MAX_PEER_GROUPS 1024

static bool parse_number(const char *text, unsigned int *ret)
{
	unsigned long number;
	char *end;

	errno = 0;
	number = strtoul(text, &end, 10);
	/* The highest number stands for no user. */
	if (errno || end == text || *end || *text == '-' || number >= 0xffffffffUL)
		return false;
	*ret = number;
	return true;
}

static bool find_user(const char *name, unsigned int *ret)
{
	FILE *file = fopen("/etc/passwd", "re");
	const struct passwd *entry;
	bool found = false;

	while (file && !found && (entry = fgetpwent(file))) {
		found = !strcmp(entry->pw_name, name);
		*ret = entry->pw_uid;
	}
	if (file)
		fclose(file);
	return found;
}

static bool find_group(const char *name, unsigned int *ret)
{
	FILE *file = fopen("/etc/group", "re");
	const struct group *entry;
	bool found = false;

	while (file && !found && (entry = fgetgrent(file))) {
		found = !strcmp(entry->gr_name, name);
		*ret = entry->gr_gid;
	}
	if (file)
		fclose(file);
	return found;
}

int ow_allow_user(struct ow_allowed *allowed, const char *name)
{
	unsigned int number = 0;

	if (!parse_number(name, &number) && !find_user(name, &number))
		return -ENOENT;
	if (allowed->nr_users == OW_MAX_ALLOWED)
		return -E2BIG;
	allowed->users[allowed->nr_users++] = number;
	return 0;
}

int ow_allow_group(struct ow_allowed *allowed, const char *name)
{
	unsigned int number = 0;

	if (!parse_number(name, &number) && !find_group(name, &number))
		return -ENOENT;
	if (allowed->nr_groups == OW_MAX_ALLOWED)
		return -E2BIG;
	allowed->groups[allowed->nr_groups++] = number;
	return 0;
}

static bool has_group(const struct ow_allowed *allowed, gid_t group)
{
	for (int i = 0; i < allowed->nr_groups; i++) {
		if (allowed->groups[i] == group)
			return true;
	}
	return false;
}

static bool has_other_group(const struct ow_allowed *allowed, int socket)
{
	gid_t groups[MAX_PEER_GROUPS];
	socklen_t bytes = sizeof(groups);

	if (!allowed->nr_groups || getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes))
		return false;
	for (size_t i = 0; i < bytes / sizeof(groups[0]); i++) {
		if (has_group(allowed, groups[i]))
			return true;
	}
	return false;
}

bool ow_is_allowed(const struct ow_allowed *allowed, int socket, uid_t *user)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);

	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes))
		return false;
	*user = peer.uid;
	if (peer.uid == 0)
		return true;
	for (int i = 0; i < allowed->nr_users; i++) {
		if (allowed->users[i] == peer.uid)
			return true;
	}
	return has_group(allowed, peer.gid) || has_other_group(allowed, socket);
}
