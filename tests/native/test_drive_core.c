// SPDX-License-Identifier: MIT
/* The drive behind the file system: from several threads, with faults, to a file and back. */
#define _GNU_SOURCE
#include "check.h"
#include "files.h"

#include <unistd.h>

#define USER (8 << 20)
#define UNIT 4096

static struct ow_drive_options some_options(void)
{
	struct ow_drive_options options = {.serial = "TEST"};

	ow_ftl_config_init(&options.config);
	ow_service_config_init(&options.service);
	options.config.user_bytes = USER;
	options.config.physical_bytes = USER + USER / 4;
	return options;
}

static struct ow_drive *open_drive(const struct ow_drive_options *options)
{
	struct ow_drive *drive = malloc(sizeof(*drive));
	const char *why = NULL;

	CHECK(drive);
	CHECK(!ow_drive_open(drive, options, &why));
	return drive;
}

static void close_drive(struct ow_drive *drive)
{
	ow_drive_close(drive);
	free(drive);
}

#define THREADS 4

struct worker {
	struct ow_drive *drive;
	uint64_t base; /* of a quarter of its own, so that it knows what it must read */
	uint32_t seed;
};

static void *work(void *arg)
{
	static const uint8_t zeroes[UNIT];
	struct worker *worker = arg;
	uint8_t data[UNIT];
	uint64_t due;

	for (int i = 0; i < 5000; i++) {
		uint32_t random = rand_r(&worker->seed);
		uint64_t at = worker->base + (uint64_t)(random % (USER / THREADS / UNIT)) * UNIT;
		bool trims = random % 5 == 0;

		memset(data, random | 1, sizeof(data));
		if (trims)
			CHECK(!ow_drive_trim(worker->drive, at, UNIT, &due));
		else
			CHECK(!ow_drive_write(worker->drive, at, data, UNIT, &due));
		CHECK(!ow_drive_read(worker->drive, at, UNIT, &due));
		CHECK(!memcmp(ow_store_read(&worker->drive->store, at), trims ? zeroes : data,
			      UNIT));
		if (random % 997 == 0)
			CHECK(!ow_drive_flush(worker->drive, &due));
	}
	return NULL;
}

static void run_threads(struct ow_drive *drive)
{
	struct worker workers[THREADS];
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){drive, (uint64_t)i * (USER / THREADS), i + 1};
		CHECK(!pthread_create(&threads[i], NULL, work, &workers[i]));
	}
	for (int i = 0; i < 200; i++) {
		char text[OW_FILE_MAX];

		for (unsigned int file = 0; file < ow_file_count; file++)
			CHECK(!ow_files[file].read || ow_files[file].read(drive, text) > 0);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], NULL));
}

static void test_threads(bool timing)
{
	struct ow_drive_options options = some_options();
	struct ow_drive *drive;
	const char *why = "";

	options.timing = timing;
	drive = open_drive(&options);
	run_threads(drive);
	CHECK(!ow_ftl_check(drive->ftl, &why));
	close_drive(drive);
}

static void test_fault_words(void)
{
	static const char *const good[] = {
		"trim=lazy",   "trim=ignore",	     "trim=keep",
		"trim=honour", "refresh=5",	     "refresh=0",
		"rollback=1",  "log-fail=c0",	     "log-slow=02:300",
		"wrap32=1024", "media-error=0:4096", "power-loss",
		"die-fail",    "read-only",	     "clear",
	};
	static const char *const bad[] = {
		"",
		"trim=",
		"trim=no",
		"refresh=",
		"refresh=5x",
		"log-fail=77",
		"log-fail=c0x",
		"log-slow=02",
		"media-error=5",
		"media-error=0:0",
		"nothing",
		"read-only=1",
		"=",
	};
	struct ow_drive_options options = some_options();
	struct ow_drive *drive = open_drive(&options);
	char text[300];

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		CHECK(!ow_fault_apply(drive, good[i]));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK(ow_fault_apply(drive, bad[i]) == -EINVAL);
	for (int i = 0; i < OW_MEDIA_RANGES; i++)
		CHECK(!ow_fault_apply(drive, "media-error=4096:512"));
	CHECK(ow_fault_apply(drive, "media-error=4096:512") == -ENOSPC);
	memset(text, 'x', sizeof(text));
	CHECK(ow_control(drive, text, sizeof(text)) == -EINVAL);
	CHECK(ow_control(drive, "fault clear\n", 12) == 0);
	CHECK(ow_control(drive, "fault", 5) == -EINVAL);
	close_drive(drive);
}

static void fill(struct ow_drive *drive)
{
	uint8_t data[UNIT];
	uint64_t due;

	for (uint64_t at = 0; at < USER; at += 3 * UNIT) {
		memset(data, 1 + at / UNIT % 255, sizeof(data));
		CHECK(!ow_drive_write(drive, at, data, UNIT, &due));
	}
}

/* A file that ends early is refused, wherever it ends. */
static void try_truncated(const char *path, struct ow_drive_options *options)
{
	struct ow_drive *drive = calloc(1, sizeof(*drive));
	const char *why = NULL;
	FILE *file = fopen(path, "r+");
	long size;

	CHECK(drive && file && !fseek(file, 0, SEEK_END));
	for (size = ftell(file) - 1; size > 0; size -= size / 40 + 1) {
		CHECK(!ftruncate(fileno(file), size));
		*drive = (struct ow_drive){.options = *options};
		CHECK(ow_state_load(drive, path, &why) < 0 && why);
		ow_ftl_destroy(drive->ftl);
		ow_store_close(&drive->store);
	}
	fclose(file);
	free(drive);
}

static void test_state(void)
{
	char path[] = "/tmp/opwatch-test-XXXXXX";
	struct ow_drive_options options = some_options();
	struct ow_drive *drive = open_drive(&options);
	struct ow_page_facts before, after;
	int fd = mkstemp(path);

	CHECK(fd >= 0 && !close(fd));
	fill(drive);
	CHECK(!ow_state_save(drive, path));
	ow_drive_truth(drive, &before);
	close_drive(drive);
	options.state = path;
	options.config.user_bytes = options.config.physical_bytes = 0;
	drive = open_drive(&options);
	ow_drive_truth(drive, &after);
	CHECK(!memcmp(&before.counters, &after.counters, sizeof(before.counters)));
	for (uint64_t at = 0; at < USER; at += UNIT) {
		const uint8_t *data = ow_store_read(&drive->store, at);

		CHECK(data[UNIT - 1] == (at % (3 * UNIT) ? 0 : 1 + at / UNIT % 255));
	}
	close_drive(drive);
	try_truncated(path, &options);
	unlink(path);
}

/* Every second unit written, then all trimmed: once kept, once given up. */
static void test_valid_map(bool no_data)
{
	struct ow_drive_options options = some_options();
	uint8_t bits[USER / UNIT / 8 + 1], data[3 * UNIT];
	struct ow_drive *drive;
	uint64_t due;

	options.no_data = no_data;
	drive = open_drive(&options);
	memset(data, 1, sizeof(data));
	for (uint64_t at = UNIT; at < USER; at += 2 * UNIT)
		CHECK(!ow_drive_write(drive, at, data, UNIT, &due));
	CHECK(!ow_fault_apply(drive, "trim=keep"));
	CHECK(!ow_drive_trim(drive, 0, USER, &due));
	CHECK(ow_valid_map(drive, 0, bits, sizeof(bits)) == sizeof(bits) - 1);
	CHECK(bits[0] == 0xaa && bits[USER / UNIT / 8 - 1] == 0xaa);
	CHECK(ow_valid_map(drive, USER / UNIT / 8 - 3, bits, sizeof(bits)) == 3);
	CHECK(!ow_valid_map(drive, USER / UNIT / 8, bits, sizeof(bits)));
	CHECK(ow_contents_are_made_up(drive) == no_data);
	if (no_data) {
		ow_contents_make_up(drive, 512, data, sizeof(data));
		CHECK(!data[0] && !data[UNIT - 513]);
		CHECK(data[UNIT - 512] && data[2 * UNIT - 513]);
		CHECK(!data[2 * UNIT - 512] && data[3 * UNIT - 1]);
	} else {
		CHECK(*(const uint8_t *)ow_store_read(&drive->store, UNIT) == 1);
	}
	CHECK(!ow_fault_apply(drive, "clear"));
	CHECK(!ow_drive_trim(drive, 0, USER, &due));
	CHECK(ow_valid_map(drive, 0, bits, sizeof(bits)) > 0 && !bits[0]);
	CHECK(no_data || !*(const uint8_t *)ow_store_read(&drive->store, UNIT));
	close_drive(drive);
}

static void note(void *arg)
{
	static int calls;

	*(int *)arg = ++calls;
}

static void test_order_of_calls(void)
{
	struct ow_later later;
	int order[8] = {0};
	uint64_t now = ow_now_ns();

	CHECK(!ow_later_start(&later));
	for (int i = 0; i < 8; i++)
		CHECK(!ow_later_add(&later, now + 20000000 + (i * 5 % 8) * 1000000, note,
				    &order[i]));
	usleep(60000);
	ow_later_stop(&later);
	for (int i = 0; i < 8; i++)
		CHECK(order[i] == i * 5 % 8 + 1);
}

int main(void)
{
	test_threads(false);
	test_threads(true);
	test_fault_words();
	test_state();
	test_valid_map(false);
	test_valid_map(true);
	test_order_of_calls();
	return 0;
}
