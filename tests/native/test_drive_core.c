// SPDX-License-Identifier: MIT
/* The drive behind the file system: several threads, faults, save and load. */
#define _GNU_SOURCE
#include "check.h"
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define USER (8 << 20)
#define UNIT 4096

static struct ow_drive_options make_options(void)
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
	uint64_t base; /* start of this thread's own quarter, where no other thread writes */
	uint32_t seed;
};

static void *run_worker(void *arg)
{
	static const uint8_t zeroes[UNIT];
	struct worker *worker = arg;
	uint8_t data[UNIT];
	struct ow_due due;

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
		CHECK(!pthread_create(&threads[i], NULL, run_worker, &workers[i]));
	}
	for (int i = 0; i < 200; i++) {
		char text[OW_FILE_MAX];

		for (unsigned int file = 0; file < ow_file_count; file++)
			CHECK(!ow_files[file].read || ow_files[file].read(drive, text) > 0);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], NULL));
}

static void test_threads_see_their_own_writes(bool timing)
{
	struct ow_drive_options options = make_options();
	struct ow_drive *drive;
	const char *why = "";

	options.timing = timing;
	drive = open_drive(&options);
	run_threads(drive);
	CHECK(!ow_ftl_check(drive->ftl, &why));
	close_drive(drive);
}

static void test_faults_are_parsed(void)
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
	struct ow_drive_options options = make_options();
	struct ow_drive *drive = open_drive(&options);
	char text[300];

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		CHECK(!ow_apply_fault(drive, good[i]));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK(ow_apply_fault(drive, bad[i]) == -EINVAL);
	for (int i = 0; i < OW_MEDIA_RANGES; i++)
		CHECK(!ow_apply_fault(drive, "media-error=4096:512"));
	CHECK(ow_apply_fault(drive, "media-error=4096:512") == -ENOSPC);
	memset(text, 'x', sizeof(text));
	CHECK(ow_run_control(drive, text, sizeof(text)) == -EINVAL);
	CHECK(ow_run_control(drive, "fault clear\n", 12) == 0);
	CHECK(ow_run_control(drive, "fault", 5) == -EINVAL);
	close_drive(drive);
}

static void write_every_third_unit(struct ow_drive *drive)
{
	uint8_t data[UNIT];
	struct ow_due due;

	for (uint64_t at = 0; at < USER; at += 3 * UNIT) {
		memset(data, 1 + at / UNIT % 255, sizeof(data));
		CHECK(!ow_drive_write(drive, at, data, UNIT, &due));
	}
}

/* Check that opening the drive fails with a reason. */
static void check_refused(const struct ow_drive_options *options, int error)
{
	struct ow_drive *drive = malloc(sizeof(*drive));
	const char *why = NULL;
	int ret;

	CHECK(drive);
	ret = ow_drive_open(drive, options, &why);
	CHECK(ret < 0 && why);
	CHECK(!error || ret == error);
	free(drive);
}

/* A truncated file is refused at any length, and so is a file with a byte too many. */
static void check_truncated_files(const char *path, const struct ow_drive_options *options)
{
	FILE *file = fopen(path, "r+");
	long size;

	CHECK(file && !fseek(file, 0, SEEK_END) && putc(0, file) == 0 && !fflush(file));
	check_refused(options, 0);
	for (size = ftell(file) - 2; size > 0; size -= size / 40 + 1) {
		CHECK(!ftruncate(fileno(file), size));
		check_refused(options, 0);
	}
	fclose(file);
}

/* Flip one bit in every part: header, FTL, ranges, contents, final checksum. */
static void check_damaged_files(const char *path, const struct ow_drive_options *options)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	off_t size = lseek(fd, 0, SEEK_END);

	CHECK(fd >= 0 && size > 0);
	for (off_t at = 0; at < size; at += at < 200 || at > size - 200 ? 1 : 997) {
		uint8_t byte, bit = 1 << at % 8;

		CHECK(pread(fd, &byte, 1, at) == 1);
		byte ^= bit;
		CHECK(pwrite(fd, &byte, 1, at) == 1);
		check_refused(options, 0);
		byte ^= bit;
		CHECK(pwrite(fd, &byte, 1, at) == 1);
	}
	close(fd);
}

static void test_saved_drive_reloads_unchanged(void)
{
	char folder[] = "/tmp/opwatch-test-XXXXXX", path[64];
	struct ow_drive_options options = make_options();
	struct ow_page_facts before, after;
	struct ow_drive *drive;
	struct stat status;

	CHECK(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/state", folder);
	options.state = path;
	drive = open_drive(&options);
	write_every_third_unit(drive);
	CHECK(!ow_apply_fault(drive, "trim=keep"));
	CHECK(!ow_state_save(drive));
	CHECK(!ow_state_save(drive)); /* replaces the file just saved */
	CHECK(!stat(path, &status) && (status.st_mode & 0777) == 0600);
	ow_drive_read_true(drive, &before);
	close_drive(drive);
	options.config.user_bytes = options.config.physical_bytes = 0;
	drive = open_drive(&options);
	ow_drive_read_true(drive, &after);
	CHECK(!memcmp(&before.counters, &after.counters, sizeof(before.counters)));
	CHECK(drive->faults.trim_keeps_data);
	for (uint64_t at = 0; at < USER; at += UNIT) {
		const uint8_t *data = ow_store_read(&drive->store, at);

		CHECK(data[UNIT - 1] == (at % (3 * UNIT) ? 0 : 1 + at / UNIT % 255));
	}
	close_drive(drive);
	check_damaged_files(path, &options);
	check_truncated_files(path, &options);
	CHECK(!unlink(path) && !rmdir(folder));
}

static void create_file(const char *path)
{
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

	CHECK(fd >= 0 && !close(fd));
}

/* A state file belongs to one drive, and links and special files are refused. */
static void test_state_file_belongs_to_one_drive(void)
{
	char folder[] = "/tmp/opwatch-test-XXXXXX", path[64], other[64], left[128];
	struct ow_drive_options options = make_options(), second = make_options();
	struct ow_drive *drive, *late;

	CHECK(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/state", folder);
	snprintf(other, sizeof(other), "%s/other", folder);
	snprintf(left, sizeof(left), "%s/.state.0123456789abcdef.saving", folder);
	options.state = path;
	/* Both drives start without a file. The second save must not replace the first's file. */
	drive = open_drive(&options);
	late = open_drive(&options);
	create_file(left);
	CHECK(!ow_state_save(drive));
	CHECK(access(left, F_OK));
	CHECK(ow_state_save(late) == -EEXIST);
	check_refused(&options, -EBUSY);
	/* A file put there by another process is not replaced either. */
	CHECK(!rename(path, other));
	create_file(path);
	CHECK(ow_state_save(drive) == -EEXIST);
	CHECK(!unlink(path) && !ow_state_save(drive));
	close_drive(drive);
	close_drive(late);
	CHECK(!unlink(other) && !symlink(path, other));
	second.state = other;
	check_refused(&second, -EPERM);
	CHECK(!unlink(other) && !mkfifo(other, 0600));
	check_refused(&second, -EPERM);
	second.state = folder;
	check_refused(&second, -EPERM);
	CHECK(!unlink(other) && !unlink(path) && !rmdir(folder));
}

/* Write every second unit, then trim all: the fault keeps the data until it is cleared. */
static void test_valid_map_lists_mapped_units(bool no_data)
{
	struct ow_drive_options options = make_options();
	uint8_t bits[USER / UNIT / 8 + 1], data[3 * UNIT];
	struct ow_drive *drive;
	struct ow_due due;

	options.no_data = no_data;
	drive = open_drive(&options);
	memset(data, 1, sizeof(data));
	for (uint64_t at = UNIT; at < USER; at += 2 * UNIT)
		CHECK(!ow_drive_write(drive, at, data, UNIT, &due));
	CHECK(!ow_apply_fault(drive, "trim=keep"));
	CHECK(!ow_drive_trim(drive, 0, USER, &due));
	CHECK(ow_copy_valid_map(drive, 0, bits, sizeof(bits)) == sizeof(bits) - 1);
	CHECK(bits[0] == 0xaa && bits[USER / UNIT / 8 - 1] == 0xaa);
	CHECK(ow_copy_valid_map(drive, USER / UNIT / 8 - 3, bits, sizeof(bits)) == 3);
	CHECK(!ow_copy_valid_map(drive, USER / UNIT / 8, bits, sizeof(bits)));
	CHECK(ow_contents_are_synthetic(drive) == no_data);
	if (no_data) {
		ow_contents_synthesize(drive, 512, data, sizeof(data));
		CHECK(!data[0] && !data[UNIT - 513]);
		CHECK(data[UNIT - 512] && data[2 * UNIT - 513]);
		CHECK(!data[2 * UNIT - 512] && data[3 * UNIT - 1]);
	} else {
		CHECK(*(const uint8_t *)ow_store_read(&drive->store, UNIT) == 1);
	}
	CHECK(!ow_apply_fault(drive, "clear"));
	CHECK(!ow_drive_trim(drive, 0, USER, &due));
	CHECK(ow_copy_valid_map(drive, 0, bits, sizeof(bits)) > 0 && !bits[0]);
	CHECK(no_data || !*(const uint8_t *)ow_store_read(&drive->store, UNIT));
	close_drive(drive);
}

/* Return the first byte of a unit as read. */
static uint8_t read_synthetic_byte(struct ow_drive *drive, uint64_t offset)
{
	uint8_t data[UNIT];

	ow_contents_synthesize(drive, offset, data, sizeof(data));
	return data[0];
}

/* Without contents, trimmed ranges read as zeroes even if trims are ignored or after a reload. */
static void test_ignored_trims_read_as_zeroes_without_contents(void)
{
	char folder[] = "/tmp/opwatch-test-XXXXXX", path[64];
	struct ow_drive_options options = make_options();
	struct ow_drive *drive;
	struct ow_due due;

	CHECK(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/state", folder);
	options.state = path;
	options.no_data = true;
	options.config.trim_mode = OW_FTL_TRIM_IGNORE;
	drive = open_drive(&options);
	CHECK(!ow_drive_write(drive, 0, NULL, 200 * UNIT, &due));
	/* The partial units at both ends keep their contents. */
	CHECK(!ow_drive_trim(drive, UNIT + 512, 100 * UNIT, &due));
	CHECK(!ow_drive_write_zeroes(drive, 150 * UNIT, UNIT, &due));
	CHECK(!ow_drive_write(drive, 70 * UNIT + 512, NULL, UNIT, &due));
	for (int saved = 0; saved < 2; saved++) {
		for (uint64_t at = 0; at < 200; at++)
			CHECK(!read_synthetic_byte(drive, at * UNIT) ==
			      ((at > 1 && at < 101 && at != 70 && at != 71) || at == 150));
		CHECK(!ow_state_save(drive));
		close_drive(drive);
		drive = open_drive(&options);
	}
	close_drive(drive);
	check_damaged_files(path, &options);
	CHECK(!unlink(path) && !rmdir(folder));
}

static void test_writes_are_counted_by_owner(bool timing)
{
	static uint8_t data[4 * UNIT];
	struct ow_drive_options options = make_options();
	struct ow_ftl_owner_counters owner;
	struct ow_ftl_counters counters;
	uint64_t host = 0, nand = 0;
	struct ow_drive *drive;
	struct ow_due due;

	CHECK(ow_parts_add(&options.parts, "late:1048576:2097152") == 0);
	CHECK(ow_parts_add(&options.parts, "early:0:1048576") == 0);
	CHECK(ow_parts_add(&options.parts, "none:4096:4096") == -EINVAL);
	CHECK(ow_parts_add(&options.parts, "quo\"te:0:4096") == -EINVAL);
	CHECK(ow_parts_add(&options.parts, "rest:0:4096x") == -EINVAL);
	options.timing = timing;
	drive = open_drive(&options);
	/* One write crosses both borders, and the others are of all else. */
	CHECK(!ow_drive_write(drive, 1048576 - UNIT, data, 2 * UNIT, &due));
	CHECK(!ow_drive_write(drive, 2097152 - UNIT, data, 4 * UNIT, &due));
	for (uint32_t i = 0; i < 4 * USER / UNIT; i++)
		CHECK(!ow_drive_write(drive, 2097152 + i * 7 % 512 * UNIT, data, UNIT, &due));
	ow_ftl_get_owner_counters(drive->ftl, 1, &owner);
	CHECK(owner.host_write_bytes == 2 * UNIT);
	ow_ftl_get_owner_counters(drive->ftl, 2, &owner);
	CHECK(owner.host_write_bytes == UNIT);
	for (uint8_t i = 0; i < 3; i++) {
		ow_ftl_get_owner_counters(drive->ftl, i, &owner);
		host += owner.host_write_bytes;
		nand += owner.nand_write_bytes;
	}
	CHECK(host == (6 + 4 * USER / UNIT) * UNIT);
	ow_ftl_get_counters(drive->ftl, &counters);
	CHECK(nand == counters.nand_write_bytes);
	close_drive(drive);
}

int main(void)
{
	test_threads_see_their_own_writes(false);
	test_threads_see_their_own_writes(true);
	test_faults_are_parsed();
	test_saved_drive_reloads_unchanged();
	test_state_file_belongs_to_one_drive();
	test_valid_map_lists_mapped_units(false);
	test_valid_map_lists_mapped_units(true);
	test_ignored_trims_read_as_zeroes_without_contents();
	test_writes_are_counted_by_owner(false);
	test_writes_are_counted_by_owner(true);
	return 0;
}
