// SPDX-License-Identifier: MIT
/* The tracer under the sanitizers: each variant loads, can be read and closes its files. */
#include <dirent.h>
#include <errno.h>
#include <unistd.h>

#include "check.h"
#include "_native/block/tracer.h"
#include "_native/history/history.h"
#include "_native/writes/writes.h"
#include "_native/block/tracer_internal.h"

#define SKIPPED 77

/* A disk that does not exist: the programs run for every I/O but count none. */
static const struct ow_disk_key disk = {.a = 0xfff00000, .target = 1};
static const struct ow_target request_based = {.last_sector = ~0ULL, .nr_queues = 2, .depth = 64};
static const struct ow_target bio_based = {.last_sector = ~0ULL, .bio_based = 1};

static char log_text[OW_LOG_SIZE];

static int count_open_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	CHECK(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

/* Add the typed program, or its raw twin. */
static void add_program(struct ow_program_list *list, const char *name, const char *needs, bool raw)
{
	struct ow_program_spec *spec = &list->programs[list->nr++];

	snprintf(spec->name, sizeof(spec->name), "%s%s", name, raw ? "_raw" : "");
	snprintf(spec->needs, sizeof(spec->needs), "%s", needs);
}

static struct ow_tracer_config make_config(const struct ow_target *target, bool queue, bool raw)
{
	struct ow_tracer_config config = {
		.targets = target,
		.nr_targets = 1,
		.disks = &disk,
		.nr_disks = 1,
		.nr_stamps = target->nr_queues * target->depth,
		.nr_bios = target->bio_based ? 1024 : 0,
		.queue_time = queue,
	};

	add_program(&config.programs, target->bio_based ? "bio_complete" : "rq_complete", "", raw);
	if (queue)
		add_program(&config.programs, "rq_queue", "btf_trace_block_io_start", raw);
	if (queue)
		add_program(&config.programs, "bio_submitted", "", raw);
	add_program(&config.programs, target->bio_based ? "bio_queue" : "rq_issue", "", raw);
	return config;
}

static void check_load_and_read(const struct ow_tracer_config *config, int programs)
{
	struct ow_program_info info[OW_MAX_PROGRAMS];
	struct ow_sample *sample = malloc(sizeof(*sample));
	struct ow_tracer *tracer = NULL;
	int err = ow_tracer_open(config, &tracer, log_text);

	if (err)
		fprintf(stderr, "%s\n", log_text);
	CHECK(!err && sample);
	/* The program for the time in io.max comes on top, if the kernel allows it. */
	programs += config->queue_time && !ow_tracer_throttle_error(tracer);
	CHECK(ow_tracer_programs(tracer, info) == programs);
	ow_tracer_sample(tracer, 0, sample);
	CHECK(sample->begin_ns <= sample->end_ns);
	CHECK(sample->op[OW_READ].completed == 0);
	ow_tracer_close(tracer);
	free(sample);
}

static void test_every_variant_loads(void)
{
	for (int raw = 0; raw < 2; raw++) {
		struct ow_tracer_config plain = make_config(&request_based, false, raw);
		struct ow_tracer_config queue = make_config(&request_based, true, raw);
		struct ow_tracer_config bios = make_config(&bio_based, false, raw);

		check_load_and_read(&plain, 2);
		check_load_and_read(&queue, 4);
		check_load_and_read(&bios, 2);
	}
}

static void test_too_many_targets_are_refused(void)
{
	struct ow_tracer_config config = make_config(&request_based, false, false);
	struct ow_tracer *tracer = NULL;

	config.nr_targets = OW_MAX_TARGETS + 1;
	CHECK(ow_tracer_open(&config, &tracer, log_text) == -E2BIG);
	CHECK(!tracer);
}

static void test_programs_of_missing_types_are_skipped(void)
{
	struct ow_tracer_config config = make_config(&request_based, false, false);
	struct ow_tracer *tracer = NULL;

	add_program(&config.programs, "rq_requeue", "no_such_name", false);
	check_load_and_read(&config, 2);
	add_program(&config.programs, "no_such_program", "", false);
	CHECK(ow_tracer_open(&config, &tracer, log_text) == -EINVAL);
	CHECK(!tracer);
}

static void test_only_typed_programs_call_discard_programs(void)
{
	for (int raw = 0; raw < 2; raw++) {
		struct ow_tracer_config config = make_config(&request_based, false, raw);
		struct ow_tracer *tracer = NULL;

		CHECK(!ow_tracer_open(&config, &tracer, log_text));
		CHECK(ow_tracer_chain(tracer, -1, -1) == (raw ? -EOPNOTSUPP : 0));
		ow_tracer_close(tracer);
	}
}

static void test_floor_programs_load(void)
{
	static const char *const pairs[][2] = {{"floor_issue", "floor_complete"},
					       {"sketch_issue", "sketch_complete"}};
	struct ow_program_info info[OW_MAX_PROGRAMS];
	struct ow_floor *floor = NULL;
	int fd = ow_enable_stats();

	CHECK(fd >= 0);
	for (int i = 0; i < 2; i++) {
		struct ow_program_list spec = {};

		add_program(&spec, pairs[i][0], "", false);
		add_program(&spec, pairs[i][1], "", false);
		CHECK(!ow_floor_open(&spec, &floor, log_text));
		CHECK(ow_floor_programs(floor, info) == 2);
		ow_floor_close(floor);
	}
	close(fd);
}

static void test_history_programs_load(void)
{
	struct ow_history_config config = {.disk = "no such disk", .ring_bytes = 1 << 16};
	struct ow_program_info info[OW_MAX_PROGRAMS];
	struct ow_history *history = NULL;
	struct ow_change change;

	add_program(&config.programs, "history_done", "", false);
	CHECK(!ow_history_open(&config, &history, log_text));
	CHECK(ow_history_programs(history, info) == 1);
	CHECK(ow_history_drain(history, &change, 1) == 0);
	CHECK(ow_history_loss(history).commands == 0);
	ow_history_close(history);

	/* Libbpf rounds other sizes up to a power of two, but 0 is invalid. */
	config.ring_bytes = 0;
	history = NULL;
	CHECK(ow_history_open(&config, &history, log_text) < 0);
	CHECK(!history);
	ow_history_close(NULL);
}

static void test_writes_programs_load(void)
{
	static struct ow_writes_config config = {
		.nr_targets = 1,
		.targets = {{.end_sector = 1}},
		.nr_functions = 1,
		.functions = {{.address = 1, .rule = OW_CLASS_DATA}},
		.counts_groups = true,
	};
	struct ow_writes *writes = NULL;
	void *pairs = NULL;
	size_t pair_bytes;
	int error = -1;

	add_program(&config.programs, "write_queued", "", false);
	CHECK(!ow_writes_open(&config, &writes, log_text));
	CHECK(!strcmp(ow_writes_attached(writes, 0, &error), "write_queued"));
	CHECK(!error);
	CHECK(!ow_writes_attached(writes, 1, &error));
	CHECK(ow_writes_counts(writes)->classes[OW_CLASS_DATA].bytes == 0);
	CHECK(ow_writes_groups(writes, &pairs, &pair_bytes) == 0);
	CHECK(pair_bytes == sizeof(struct ow_write_group) + sizeof(struct ow_write_count));
	free(pairs);
	ow_writes_close(writes);

	add_program(&config.programs, "missing", "", false);
	writes = NULL;
	CHECK(ow_writes_open(&config, &writes, log_text) < 0);
	CHECK(!writes);
	ow_writes_close(NULL);
}

static void test_cpu_lists_are_parsed(void)
{
	CHECK(ow_parse_cpu_list("0\n") == 1);
	CHECK(ow_parse_cpu_list("0-3\n") == 4);
	CHECK(ow_parse_cpu_list("0-1,8-11\n") == 12);
	CHECK(ow_parse_cpu_list("0,64") == 65);
	CHECK(ow_parse_cpu_list("") == 0);
	CHECK(ow_parse_cpu_list("none\n") == 0);
	CHECK(ow_parse_cpu_list("0-99999999999\n") == 0);
	CHECK(ow_count_possible_cpus() >= 1);
}

int main(void)
{
	int before;

	test_cpu_lists_are_parsed();
	if (geteuid()) {
		printf("it needs root\n");
		return SKIPPED;
	}
	/* The first load keeps the kernel's types in a memory file, so count descriptors later. */
	test_only_typed_programs_call_discard_programs();
	before = count_open_descriptors();
	test_every_variant_loads();
	test_too_many_targets_are_refused();
	test_programs_of_missing_types_are_skipped();
	test_only_typed_programs_call_discard_programs();
	test_floor_programs_load();
	test_history_programs_load();
	test_writes_programs_load();
	CHECK(count_open_descriptors() == before);
	return 0;
}
