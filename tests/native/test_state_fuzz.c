// SPDX-License-Identifier: MIT
/*
 * Fuzz saved drives: fields and array entries change according to their type, behind a valid
 * checksum. An accepted drive must work like any other drive. STATE_INPUTS and FUZZ_SEED set the
 * number of inputs and the seed.
 */
#include "check.h"
#include "odd_value.h"
#include "random_drive.h"
#include "ftl/state/state.h"

#include <unistd.h>

#define INPUTS_PER_DRIVE 500
#define OPS_AFTER	 24
#define HANG_S		 60 /* an input that takes longer has hung */
#define MAX_PIECES	 4096

/* Make large allocations fail, because poisoning a huge buffer would take a minute. */
const char *__asan_default_options(void)
{
	return "max_allocation_size_mb=256:allocator_may_return_null=1";
}

/* The bytes of one call: a field or an array. The checksum depends on these boundaries. */
struct piece {
	size_t at;
	size_t len;
};

struct saved {
	struct memory whole;
	struct piece pieces[MAX_PIECES];
	size_t count;
};

static int put_piece(void *ctx, const void *data, size_t len)
{
	struct saved *saved = ctx;

	CHECK(saved->count < MAX_PIECES);
	saved->pieces[saved->count++] = (struct piece){saved->whole.len, len};
	return memory_put(&saved->whole, data, len);
}

static int discard_bytes(void *ctx, const void *data, size_t len)
{
	(void)ctx;
	(void)data;
	(void)len;
	return 0;
}

/* Update the final piece, the checksum over all pieces before. */
static void update_checksum(struct saved *saved, unsigned char *data)
{
	struct ow_stream stream = {.put = discard_bytes};
	const struct piece *last = &saved->pieces[saved->count - 1];

	for (const struct piece *piece = saved->pieces; piece < last; piece++)
		CHECK(!ow_stream_move(&stream, data + piece->at, piece->len));
	memcpy(data + last->at, &stream.sum, sizeof(stream.sum));
}

/* Change a value of @width bytes at @at, or replace it by another value of the same piece. */
static void change_value(uint64_t *rng, unsigned char *at, size_t width, const struct piece *piece,
			 unsigned char *start)
{
	uint64_t value = 0;

	memcpy(&value, at, width);
	if (piece->len > width && ow_rng_below(rng, 3) == 0)
		memcpy(&value, start + ow_rng_below(rng, piece->len / width) * width, width);
	else
		value = pick_odd_value(rng, value);
	memcpy(at, &value, width);
}

static void change_piece(struct saved *saved, uint64_t *rng, unsigned char *data)
{
	static const size_t widths[] = {1, 4, 4, 4, 8};
	/* Leave out the magic number and the version, which other tests cover. */
	const struct piece *piece = &saved->pieces[2 + ow_rng_below(rng, saved->count - 3)];
	size_t width = piece->len;

	if (!width)
		return;
	if (width > 8)
		width = widths[ow_rng_below(rng, 5)];
	change_value(rng, data + piece->at + ow_rng_below(rng, piece->len / width) * width, width,
		     piece, data + piece->at);
}

static void run_random_command(struct ow_ftl *ftl, uint64_t *rng, uint64_t offset, uint64_t len,
			       uint32_t streams)
{
	switch (ow_rng_below(rng, 16)) {
	case 0:
		ow_ftl_trim(ftl, offset, len);
		break;
	case 1:
		ow_ftl_write_zeroes(ftl, offset, len, 0);
		break;
	case 2:
		ow_ftl_idle(ftl, 1 + ow_rng_below(rng, 100000));
		break;
	case 3:
		ow_ftl_power_loss(ftl);
		break;
	case 4:
		ow_ftl_flush(ftl);
		break;
	case 5:
		ow_ftl_read(ftl, offset, len);
		break;
	case 6:
		if (!ow_rng_below(rng, 8))
			ow_ftl_die_fail(ftl);
		break;
	case 7:
		if (!ow_rng_below(rng, 16))
			ow_ftl_format(ftl);
		break;
	default:
		ow_ftl_write(ftl, offset, len, ow_rng_below(rng, streams));
	}
}

static void run_random_commands(struct ow_ftl *ftl, uint64_t *rng)
{
	struct ow_ftl_config config;
	struct ow_ftl_counters counters;
	uint64_t pages;

	ow_ftl_get_config(ftl, &config);
	pages = config.user_bytes / config.iu_bytes;
	for (int i = 0; i < OPS_AFTER; i++) {
		uint64_t at = ow_rng_below(rng, pages), n = 1 + ow_rng_below(rng, 64);
		uint64_t len = (n < pages - at ? n : pages - at) * config.iu_bytes;

		run_random_command(ftl, rng, at * config.iu_bytes, len, config.streams);
	}
	ow_ftl_get_counters(ftl, &counters);
}

/* Load a mutated file and use the drive. Returns true if the file was accepted. */
static bool try_one(struct saved *saved, uint64_t *rng, unsigned char *data)
{
	struct memory input = {.data = data, .len = saved->whole.len};
	struct ow_ftl *ftl;
	struct ow_ftl_counters counters;
	const char *why;

	memcpy(data, saved->whole.data, saved->whole.len);
	for (uint64_t n = 1 + ow_rng_below(rng, 3); n; n--)
		change_piece(saved, rng, data);
	update_checksum(saved, data);
	alarm(HANG_S);
	if (ow_ftl_load(&ftl, memory_get, &input))
		return false;
	run_random_commands(ftl, rng);
	ow_ftl_get_counters(ftl, &counters);
	if (!counters.read_only && ow_ftl_check(ftl, &why)) {
		fprintf(stderr, "accepted, but then %s\n", why);
		abort();
	}
	ow_ftl_destroy(ftl);
	return true;
}

static void age_drive(struct ow_ftl *ftl, uint64_t *rng)
{
	struct ow_ftl_workload load = {.rng = ow_rng_next(rng)};

	ow_ftl_run(ftl, &load, ow_rng_below(rng, 3000));
	CHECK(!ow_ftl_set_owner(ftl, ow_rng_below(rng, 2) * 7));
	for (uint64_t rounds = ow_rng_below(rng, 8); rounds; rounds--)
		run_random_commands(ftl, rng);
}

int main(void)
{
	const char *inputs = getenv("STATE_INPUTS"), *seed = getenv("FUZZ_SEED");
	uint64_t left = inputs ? strtoull(inputs, NULL, 0) : 20000, accepted = 0, all = left;
	uint64_t rng = seed ? strtoull(seed, NULL, 0) : 1;
	static struct saved saved;

	while (left) {
		struct ow_ftl_config config;
		struct ow_ftl *ftl;
		unsigned char *data;

		make_random_config(&config, &rng, 200);
		CHECK(!ow_ftl_create(&ftl, &config));
		age_drive(ftl, &rng);
		saved = (struct saved){.whole = saved.whole};
		saved.whole.len = 0;
		CHECK(!ow_ftl_save(ftl, put_piece, &saved));
		ow_ftl_destroy(ftl);
		data = malloc(saved.whole.len);
		CHECK(data);
		for (int i = 0; i < INPUTS_PER_DRIVE && left; i++, left--)
			accepted += try_one(&saved, &rng, data);
		free(data);
	}
	free(saved.whole.data);
	CHECK(accepted && accepted < all);
	printf("%llu inputs, %llu accepted\n", (unsigned long long)all,
	       (unsigned long long)accepted);
	return 0;
}
