// SPDX-License-Identifier: MIT
/*
 * Fuzz the server's saved drives: wrong headers, ranges of contents and FTLs behind valid
 * checksums. An accepted drive must work like any other drive, and must be unchanged after a save
 * and reload. STATE_INPUTS and FUZZ_SEED set the number of inputs and the seed.
 */
#define _GNU_SOURCE
#include "check.h"
#include "files.h"
#include "odd_value.h"
#include "random_drive.h"
#include "saved.h"
#include "drive/server/storage/sum.h"

#include <unistd.h>

#define INPUTS_PER_DRIVE 250
#define OPS_AFTER	 16
#define HANG_S		 60 /* an input that takes longer has hung */
#define MAX_RUNS	 64
#define MAX_PAYLOAD	 OW_SAVED_CHUNK_BYTES /* the server saves no longer range */
#define MAX_MEMORY	 (64 << 20)
#define FILE_NAME	 "state"

/* Make large allocations fail, because poisoning a huge drive would take a minute. */
const char *__asan_default_options(void)
{
	return "max_allocation_size_mb=256:allocator_may_return_null=1";
}

/* A record and its payload: @payload_len bytes at @data. */
struct range {
	uint64_t offset;
	uint64_t len;
	const unsigned char *data;
	size_t payload_len;
};

/* A saved drive, split into its parts. */
struct saved {
	struct memory file;
	struct ow_saved_header header;
	size_t ftl_at;
	size_t ftl_len;
	uint64_t unit;
	struct range ranges[MAX_RUNS];
	size_t count;
	uint64_t trailing_bytes; /* bytes after the final record */
};

static struct ow_drive_options make_options(const struct ow_ftl_config *config)
{
	struct ow_drive_options options = {
		.serial = "FUZZ", .state = FILE_NAME, .memory_bytes = MAX_MEMORY};

	ow_service_config_init(&options.service);
	if (config)
		options.config = *config;
	return options;
}

/* Run host commands and ignore their results. */
static void run_random_commands(struct ow_drive *drive, uint64_t *rng, int count)
{
	uint64_t unit = drive->options.config.iu_bytes;
	uint64_t pages = drive->options.config.user_bytes / unit;
	struct ow_due due;
	static const char data[4 << 16] = "whatever";

	while (count--) {
		uint64_t page = ow_rng_below(rng, pages), n = 1 + ow_rng_below(rng, 4);
		uint64_t len = (n < pages - page ? n : pages - page) * unit, at = page * unit;
		uint64_t kind = ow_rng_below(rng, 8);

		if (kind == 0)
			ow_drive_trim(drive, at, len, &due);
		else if (kind == 1)
			ow_drive_write_zeroes(drive, at, len, &due);
		else if (kind == 2)
			ow_drive_flush(drive, &due);
		else if (kind == 3)
			ow_drive_read(drive, at, len, &due);
		else
			ow_drive_write(drive, at, data, len, &due);
	}
}

/* Read every file of a drive. Returns a checksum over the first bytes of every unit. */
static uint64_t checksum_drive(struct ow_drive *drive)
{
	uint64_t user = drive->options.config.user_bytes, unit = drive->options.config.iu_bytes;
	uint64_t sum = 0;
	uint8_t data[256];
	char text[OW_FILE_MAX];

	for (unsigned int i = 0; i < ow_file_count; i++) {
		if (ow_files[i].read)
			CHECK(ow_files[i].read(drive, text) > 0);
		if (ow_files[i].read_at)
			CHECK(ow_files[i].read_at(drive, 0, data, sizeof(data)) >= 0);
	}
	for (uint64_t at = 0; at < user; at += unit) {
		if (ow_contents_are_synthetic(drive))
			ow_contents_synthesize(drive, at, data, sizeof(data));
		else
			memcpy(data, ow_store_read(&drive->store, at), sizeof(data));
		sum = ow_sum(sum, data, sizeof(data));
	}
	return sum;
}

static size_t find_ftl_length(const struct memory *file, size_t at)
{
	struct memory rest = {.data = file->data + at, .len = file->len - at};
	struct ow_ftl *ftl;

	CHECK(!ow_ftl_load(&ftl, memory_get, &rest));
	ow_ftl_destroy(ftl);
	return rest.at;
}

static void split_saved(struct saved *saved)
{
	struct memory *file = &saved->file;

	saved->ftl_at = sizeof(saved->header) + sizeof(uint64_t);
	memcpy(&saved->header, file->data, sizeof(saved->header));
	saved->ftl_len = find_ftl_length(file, saved->ftl_at);
	file->at = saved->ftl_at + saved->ftl_len;
	saved->count = 0;
	saved->trailing_bytes = 0;
	for (;;) {
		struct range *range = &saved->ranges[saved->count];
		struct ow_saved_run run;

		CHECK(!memory_get(file, &run, sizeof(run)));
		if (run.offset == OW_SAVED_END)
			break;
		CHECK(++saved->count < MAX_RUNS / 2);
		*range = (struct range){run.offset, run.len, file->data + file->at, 0};
		if (!(saved->header.flags & OW_SAVED_NO_DATA))
			range->payload_len = run.len;
		file->at += range->payload_len;
	}
	CHECK(file->at == file->len);
}

/* Create a random drive with a few ranges of contents, and let the server save it. */
static void make_saved(struct saved *saved, uint64_t *rng)
{
	struct ow_ftl_config config;
	struct ow_drive_options options;
	struct ow_drive drive;
	const char *why;

	make_random_config(&config, rng, 100);
	unlink(FILE_NAME);
	options = make_options(&config);
	options.no_data = ow_rng_below(rng, 3) == 0;
	CHECK(!ow_drive_open(&drive, &options, &why));
	if (ow_rng_below(rng, 4) == 0)
		CHECK(!ow_apply_fault(&drive, "trim=keep"));
	run_random_commands(&drive, rng, 1 + ow_rng_below(rng, 16));
	saved->unit = config.iu_bytes;
	CHECK(!ow_state_save(&drive));
	ow_drive_close(&drive);
	memory_from_file(&saved->file, FILE_NAME);
	split_saved(saved);
}

/* Fill in a record's payload, with the record's length if possible. Returns the length. */
static size_t fill_payload(const struct range *range, unsigned char *data)
{
	size_t len = range->len <= MAX_PAYLOAD ? range->len : range->payload_len;

	len = len <= MAX_PAYLOAD ? len : MAX_PAYLOAD;
	memset(data, 0x5a, len);
	if (range->payload_len)
		memcpy(data, range->data, range->payload_len < len ? range->payload_len : len);
	return len;
}

/* Assemble a file from its parts, with valid checksums. */
static void join_saved(const struct saved *saved, const struct saved *ftl, struct memory *out)
{
	static unsigned char data[MAX_PAYLOAD];
	const struct ow_saved_header *header = &saved->header;
	uint64_t sum = ow_sum(0, header, sizeof(*header));
	struct ow_saved_run last = {.offset = OW_SAVED_END};

	out->len = out->at = 0;
	memory_put(out, header, sizeof(*header));
	memory_put(out, &sum, sizeof(sum));
	memory_put(out, ftl->file.data + ftl->ftl_at, ftl->ftl_len);
	for (size_t i = 0; i < saved->count; i++) {
		const struct range *range = &saved->ranges[i];
		bool has = !(header->flags & OW_SAVED_NO_DATA);
		size_t len = has ? fill_payload(range, data) : 0;
		struct ow_saved_run run = {range->offset, range->len, 0};

		run.sum = has ? ow_sum(run.offset, data, len) : ow_sum_word(run.offset, run.len);
		sum = ow_sum_word(sum, run.sum);
		memory_put(out, &run, sizeof(run));
		memory_put(out, data, len);
	}
	last.sum = sum;
	memory_put(out, &last, sizeof(last));
	for (uint64_t i = 0; i < saved->trailing_bytes; i++)
		memory_put(out, "", 1);
}

static void change_header(struct ow_saved_header *header, uint64_t *rng)
{
	switch (ow_rng_below(rng, 5)) {
	case 0:
		header->flags ^= 1U << ow_rng_below(rng, 4);
		break;
	case 1:
		header->flags = pick_odd_value(rng, header->flags);
		break;
	case 2:
		header->version = pick_odd_value(rng, header->version);
		break;
	case 3:
		header->unaligned_writes = pick_odd_value(rng, header->unaligned_writes);
		header->power_on_s = pick_odd_value(rng, header->power_on_s);
		break;
	default:
		header->serial[ow_rng_below(rng, sizeof(header->serial))] = ow_rng_next(rng);
	}
}

/* Return an offset or length a few units from @was, or an odd value. */
static uint64_t pick_odd_offset(uint64_t *rng, uint64_t was, uint64_t unit)
{
	uint64_t step = (ow_rng_below(rng, 9) - 4) * unit;

	return ow_rng_below(rng, 2) ? was + step : pick_odd_value(rng, was);
}

static void change_ranges(struct saved *saved, uint64_t *rng)
{
	size_t at = ow_rng_below(rng, saved->count), other = ow_rng_below(rng, saved->count);
	struct range *range = &saved->ranges[at], copy = *range;

	switch (ow_rng_below(rng, 6)) {
	case 0:
		range->offset = pick_odd_offset(rng, range->offset, saved->unit);
		break;
	case 1:
		range->len = pick_odd_offset(rng, range->len, saved->unit);
		break;
	case 2:
		*range = saved->ranges[other];
		saved->ranges[other] = copy;
		break;
	case 3:
		*range = saved->ranges[--saved->count];
		break;
	case 4:
		if (saved->count < MAX_RUNS)
			saved->ranges[saved->count++] = copy;
		break;
	default:
		range->data =
			saved->file.data + ow_rng_below(rng, saved->file.len - range->payload_len);
	}
}

static void change_saved(struct saved *saved, uint64_t *rng)
{
	uint64_t kind = ow_rng_below(rng, 8);

	if (kind < 3 || !saved->count)
		change_header(&saved->header, rng);
	else if (kind < 7)
		change_ranges(saved, rng);
	else
		saved->trailing_bytes = ow_rng_below(rng, 3);
}

/* Check that a save and reload leaves the drive unchanged. */
static void check_reload(struct ow_drive *drive)
{
	struct ow_drive_options options = make_options(NULL);
	uint64_t before;
	struct ow_drive again;
	const char *why = "";

	/* The save includes a power cycle, which empties the buffer, so look afterwards. */
	CHECK(!ow_state_save(drive));
	before = checksum_drive(drive);
	ow_drive_close(drive);
	CHECK(!ow_drive_open(&again, &options, &why));
	CHECK(checksum_drive(&again) == before);
	ow_drive_close(&again);
}

/* Load a mutated file and use the drive. Returns true if the file was accepted. */
static bool try_one(const struct saved *saved, const struct saved *other, uint64_t *rng)
{
	struct ow_drive_options options = make_options(NULL);
	static struct memory input;
	static struct saved changed;
	struct ow_drive drive;
	const char *why = "";

	changed = *saved;
	for (uint64_t n = ow_rng_below(rng, 4); n; n--)
		change_saved(&changed, rng);
	join_saved(&changed, ow_rng_below(rng, 16) ? saved : other, &input);
	memory_to_file(&input, FILE_NAME);
	alarm(HANG_S);
	if (ow_drive_open(&drive, &options, &why)) {
		CHECK(*why);
		return false;
	}
	checksum_drive(&drive);
	run_random_commands(&drive, rng, OPS_AFTER);
	CHECK(!ow_ftl_check(drive.ftl, &why));
	if (ow_rng_below(rng, 4))
		ow_drive_close(&drive);
	else
		check_reload(&drive);
	return true;
}

/* Check that assembling the unchanged parts gives the same file. */
static void check_join_of_parts(const struct saved *saved)
{
	struct memory whole = {0};

	join_saved(saved, saved, &whole);
	CHECK(whole.len == saved->file.len && !memcmp(whole.data, saved->file.data, whole.len));
	free(whole.data);
}

/* Check that a file without one of its ranges is refused, because its data would read as zeroes. */
static void check_missing_range(const struct saved *saved)
{
	struct ow_drive_options options = make_options(NULL);
	struct saved changed = *saved;
	struct memory whole = {0};
	struct ow_drive drive;
	const char *why = "";

	if (!changed.count || changed.header.flags & OW_SAVED_NO_DATA)
		return;
	changed.count--;
	join_saved(&changed, saved, &whole);
	memory_to_file(&whole, FILE_NAME);
	CHECK(ow_drive_open(&drive, &options, &why) == -EBADMSG);
	CHECK(strstr(why, "contents"));
	free(whole.data);
}

int main(void)
{
	const char *inputs = getenv("STATE_INPUTS"), *seed = getenv("FUZZ_SEED");
	uint64_t left = inputs ? strtoull(inputs, NULL, 0) : 5000, accepted = 0, all = left;
	uint64_t rng = seed ? strtoull(seed, NULL, 0) : 1;
	static struct saved saved[2];
	/* Use memory if possible, because a save to disk waits for the disk. */
	char memory[] = "/dev/shm/opwatch-fuzz-XXXXXX", disk[] = "/tmp/opwatch-fuzz-XXXXXX";
	char *folder = mkdtemp(memory);

	if (!folder)
		folder = mkdtemp(disk);
	CHECK(folder && !chdir(folder));
	make_saved(&saved[1], &rng);
	for (int at = 0; left; at = !at) {
		make_saved(&saved[at], &rng);
		check_join_of_parts(&saved[at]);
		check_missing_range(&saved[at]);
		for (int i = 0; i < INPUTS_PER_DRIVE && left; i++, left--)
			accepted += try_one(&saved[at], &saved[!at], &rng);
	}
	CHECK(!unlink(FILE_NAME) && !chdir("/") && !rmdir(folder));
	free(saved[0].file.data);
	free(saved[1].file.data);
	CHECK(accepted && accepted < all);
	printf("%llu inputs, %llu accepted\n", (unsigned long long)all,
	       (unsigned long long)accepted);
	return 0;
}
