// SPDX-License-Identifier: MIT
/*
 * Random commands on random drives, against a model with the expected state of each unit. The
 * invariants are proven throughout. FUZZ_OPS and FUZZ_SEED set the number of commands and the seed.
 */
#include "check.h"
#include "random_drive.h"

#define OPS_PER_DRIVE 20000
#define CHECK_EVERY   64

/* Possible states of a unit after a power loss, combined as bits. */
#define UNMAPPED 1
#define MAPPED	 2

struct fuzz {
	struct ow_ftl *ftl;
	struct ow_ftl_config config;
	uint8_t *now;	/* state visible to the host: UNMAPPED or MAPPED */
	uint8_t *after; /* possible states after a power loss */
	uint32_t pages;
	uint64_t rng;
	uint64_t zeroes_bytes; /* programmed for write-zeroes */
	uint32_t owners;       /* of writes; 1: no pages are tagged */
};

static uint64_t draw_below(struct fuzz *fuzz, uint64_t n)
{
	return ow_rng_below(&fuzz->rng, n);
}

static void create_drive(struct fuzz *fuzz)
{
	const char *why;
	int ret;

	make_random_config(&fuzz->config, &fuzz->rng, 1500);
	fuzz->pages = fuzz->config.user_bytes / fuzz->config.iu_bytes;
	fuzz->zeroes_bytes = 0;
	fuzz->owners = draw_below(fuzz, 2) ? 1 : 1 + draw_below(fuzz, OW_FTL_MAX_OWNERS);
	ret = ow_ftl_config_check(&fuzz->config, &why);
	if (ret)
		fprintf(stderr, "%s\n", why);
	CHECK(!ret && !ow_ftl_create(&fuzz->ftl, &fuzz->config));
	fuzz->now = malloc(fuzz->pages);
	fuzz->after = malloc(fuzz->pages);
	CHECK(fuzz->now && fuzz->after);
	memset(fuzz->now, UNMAPPED, fuzz->pages);
	memset(fuzz->after, UNMAPPED, fuzz->pages);
}

static void destroy_drive(struct fuzz *fuzz)
{
	ow_ftl_destroy(fuzz->ftl);
	free(fuzz->now);
	free(fuzz->after);
}

static void mark_written(struct fuzz *fuzz, uint64_t offset_bytes, uint64_t len_bytes)
{
	uint32_t iu = fuzz->config.iu_bytes;

	for (uint64_t at = offset_bytes / iu;
	     len_bytes && at <= (offset_bytes + len_bytes - 1) / iu; at++) {
		fuzz->now[at] = MAPPED;
		fuzz->after[at] |= MAPPED;
		/*
		 * Without a buffer the page is on flash at once, and stays there even if lazy trims
		 * are lost.
		 */
		if (!fuzz->config.buffer_bytes)
			fuzz->after[at] = MAPPED;
	}
}

static void mark_unmapped(struct fuzz *fuzz, uint64_t first, uint64_t end, bool is_certain)
{
	for (uint64_t at = first; at < end; at++) {
		fuzz->now[at] = UNMAPPED;
		fuzz->after[at] = is_certain ? UNMAPPED : fuzz->after[at] | UNMAPPED;
	}
}

/* Everything is on flash, so a power loss changes nothing. */
static void mark_durable(struct fuzz *fuzz)
{
	memcpy(fuzz->after, fuzz->now, fuzz->pages);
}

static void draw_range(struct fuzz *fuzz, uint64_t *offset_bytes, uint64_t *len_bytes)
{
	uint64_t user = fuzz->config.user_bytes,
		 unit = draw_below(fuzz, 3) ? fuzz->config.iu_bytes : 512;
	uint64_t max_len = unit * (draw_below(fuzz, 16) ? 8 : 200);

	*offset_bytes = draw_below(fuzz, user / unit) * unit;
	*len_bytes = (1 + draw_below(fuzz, max_len / unit)) * unit;
	if (*len_bytes > user - *offset_bytes)
		*len_bytes = user - *offset_bytes;
}

static int do_write(struct fuzz *fuzz)
{
	uint64_t offset, len;
	int ret;

	draw_range(fuzz, &offset, &len);
	ret = ow_ftl_write(fuzz->ftl, offset, len, draw_below(fuzz, fuzz->config.streams));
	if (!ret)
		mark_written(fuzz, offset, len);
	return ret;
}

static int do_trim(struct fuzz *fuzz)
{
	uint64_t offset, len, iu = fuzz->config.iu_bytes;
	int ret;

	draw_range(fuzz, &offset, &len);
	ret = ow_ftl_trim(fuzz->ftl, offset, len);
	if (!ret && fuzz->config.trim_mode != OW_FTL_TRIM_IGNORE)
		mark_unmapped(fuzz, (offset + iu - 1) / iu, (offset + len) / iu,
			      fuzz->config.trim_mode == OW_FTL_TRIM_HONOUR);
	return ret;
}

static int do_write_zeroes(struct fuzz *fuzz)
{
	uint64_t offset, len, iu = fuzz->config.iu_bytes, first, last;
	int ret;

	draw_range(fuzz, &offset, &len);
	first = (offset + iu - 1) / iu;
	last = (offset + len) / iu;
	ret = ow_ftl_write_zeroes(fuzz->ftl, offset, len, 0);
	if (ret)
		return ret;
	if (!fuzz->config.write_zeroes_unmaps || first >= last) {
		mark_written(fuzz, offset, len);
		fuzz->zeroes_bytes += len;
		return 0;
	}
	fuzz->zeroes_bytes += len - (last - first) * iu;
	mark_unmapped(fuzz, first, last, true);
	mark_written(fuzz, offset, first * iu - offset);
	mark_written(fuzz, last * iu, offset + len - last * iu);
	return 0;
}

/* Run random or sequential writes in a zone, which map units and unmap none. */
static int do_run(struct fuzz *fuzz)
{
	uint64_t iu = fuzz->config.iu_bytes, first = draw_below(fuzz, fuzz->pages), n, count;
	struct ow_ftl_workload load = {.zone_count = 1, .rng = ow_rng_next(&fuzz->rng)};
	int ret;

	n = 1 + draw_below(fuzz, fuzz->pages - first);
	count = draw_below(fuzz, 300);
	load.zones[0] =
		(struct ow_ftl_zone){.start_bytes = first * iu, .len_bytes = n * iu, .weight = 1};
	load.sequential = draw_below(fuzz, 2);
	ret = ow_ftl_run(fuzz->ftl, &load, count);
	if (ret)
		return ret;
	CHECK(load.writes == count);
	for (uint64_t at = first; at < first + n; at++) {
		int mapped = ow_ftl_is_mapped(fuzz->ftl, at * iu);

		CHECK(mapped || fuzz->now[at] == UNMAPPED);
		CHECK(!load.sequential ||
		      mapped == (fuzz->now[at] == MAPPED || at - first < count));
		if (mapped)
			mark_written(fuzz, at * iu, iu);
		/*
		 * With a buffer or trims, the run's writes may or may not survive, so allow both
		 * states.
		 */
		fuzz->after[at] |= fuzz->config.buffer_bytes || fuzz->config.trim_mode ? 3 : 0;
	}
	return 0;
}

static int do_power_loss(struct fuzz *fuzz)
{
	int ret = ow_ftl_power_loss(fuzz->ftl);

	for (uint64_t at = 0; at < fuzz->pages; at++) {
		int mapped = ow_ftl_is_mapped(fuzz->ftl, at * fuzz->config.iu_bytes);

		if (fuzz->config.plp)
			CHECK(ret || mapped == (fuzz->now[at] == MAPPED));
		CHECK(fuzz->after[at] & (mapped ? MAPPED : UNMAPPED));
		fuzz->now[at] = mapped ? MAPPED : UNMAPPED;
	}
	mark_durable(fuzz);
	return ret;
}

/* Replace the drive by a reloaded one, which must save to the same bytes. */
static int do_reload(struct fuzz *fuzz)
{
	struct memory first = {0}, second = {0};
	struct ow_ftl *loaded;

	CHECK(!ow_ftl_save(fuzz->ftl, memory_put, &first));
	CHECK(!ow_ftl_load(&loaded, memory_get, &first));
	CHECK(first.at == first.len);
	CHECK(!ow_ftl_save(loaded, memory_put, &second));
	CHECK(first.len == second.len && !memcmp(first.data, second.data, first.len));
	ow_ftl_destroy(fuzz->ftl);
	fuzz->ftl = loaded;
	/* A saved drive with a damaged byte is refused, wherever the byte is. */
	first.at = 0;
	first.data[draw_below(fuzz, first.len)] ^= 1 << draw_below(fuzz, 8);
	CHECK(ow_ftl_load(&loaded, memory_get, &first));
	free(first.data);
	free(second.data);
	return 0;
}

static int do_format(struct fuzz *fuzz)
{
	int ret = ow_ftl_format(fuzz->ftl);

	if (!ret)
		mark_unmapped(fuzz, 0, fuzz->pages, true);
	return ret;
}

static int do_settle(struct fuzz *fuzz)
{
	int ret = ow_ftl_idle(fuzz->ftl, 1 + draw_below(fuzz, 1000000));

	if (!ret)
		mark_durable(fuzz);
	return ret;
}

static int do_flush(struct fuzz *fuzz)
{
	int ret = draw_below(fuzz, 2) ? ow_ftl_flush(fuzz->ftl) : ow_ftl_power_cycle(fuzz->ftl);

	/* A flush does not make lazy trims durable, and does nothing with power-loss protection. */
	if (!ret && !fuzz->config.plp && fuzz->config.trim_mode != OW_FTL_TRIM_LAZY)
		mark_durable(fuzz);
	return ret;
}

static int run_random_command(struct fuzz *fuzz)
{
	uint64_t offset, len, what = draw_below(fuzz, 10000);

	CHECK(!ow_ftl_set_owner(fuzz->ftl, draw_below(fuzz, fuzz->owners)));
	if (what < 6000)
		return do_write(fuzz);
	if (what < 7500)
		return do_trim(fuzz);
	if (what < 8000)
		return do_write_zeroes(fuzz);
	if (what < 9000) {
		draw_range(fuzz, &offset, &len);
		return ow_ftl_read(fuzz->ftl, offset, len);
	}
	if (what < 9300)
		return do_flush(fuzz);
	if (what < 9500)
		return do_settle(fuzz);
	if (what < 9800)
		return do_run(fuzz);
	if (what < 9950)
		return do_power_loss(fuzz);
	if (what < 9990)
		return do_reload(fuzz);
	if (what < 9998)
		return do_format(fuzz);
	return ow_ftl_die_fail(fuzz->ftl);
}

static void check_drive(struct fuzz *fuzz)
{
	struct ow_ftl_counters c;
	const char *why;

	if (ow_ftl_check(fuzz->ftl, &why)) {
		fprintf(stderr, "%s\n", why);
		abort();
	}
	ow_ftl_get_counters(fuzz->ftl, &c);
	/* After a command that failed half-way, the model lags behind the drive. */
	if (c.read_only)
		return;
	for (uint64_t at = 0; at < fuzz->pages; at++)
		CHECK(ow_ftl_is_mapped(fuzz->ftl, at * fuzz->config.iu_bytes) ==
		      (fuzz->now[at] == MAPPED));
	if (!fuzz->config.buffer_bytes)
		CHECK(c.nand_write_host_bytes == c.host_write_bytes + fuzz->zeroes_bytes);
	CHECK(c.valid_bytes <= c.physical_bytes + fuzz->config.slc_bytes);
}

/* Return true if the drive is read-only. A drive may refuse commands only at its end of life. */
static bool has_ended(struct fuzz *fuzz, int ret)
{
	struct ow_ftl_counters c;

	if (!ret)
		return false;
	ow_ftl_get_counters(fuzz->ftl, &c);
	CHECK(ret == -EROFS && (c.read_only || c.failed_dies + 1 >= fuzz->config.dies));
	return c.read_only;
}

int main(void)
{
	const char *ops = getenv("FUZZ_OPS"), *seed = getenv("FUZZ_SEED");
	uint64_t left = ops ? strtoull(ops, NULL, 0) : 200000;
	struct fuzz fuzz = {.rng = seed ? strtoull(seed, NULL, 0) : 1};
	uint64_t drives = 0, ended = 0;

	for (; left; drives++) {
		bool over = false;

		create_drive(&fuzz);
		for (uint64_t op = 0; op < OPS_PER_DRIVE && left && !over; op++, left--) {
			over = has_ended(&fuzz, run_random_command(&fuzz));
			if (op % CHECK_EVERY == 0 || over)
				check_drive(&fuzz);
		}
		check_drive(&fuzz);
		ended += over;
		destroy_drive(&fuzz);
	}
	printf("%llu drives, %llu came to their end\n", (unsigned long long)drives,
	       (unsigned long long)ended);
	return 0;
}
