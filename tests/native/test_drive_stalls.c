// SPDX-License-Identifier: MIT
/* The drive's own clock, the list of episodes, and the faults that stop the drive. */
#define _GNU_SOURCE
#include "check.h"
#include "drive.h"
#include "files.h"

#include <errno.h>
#include <time.h>

#define USER (8 << 20)
#define UNIT 4096
#define MS   1000000ULL

static void test_clock_stops_in_a_stall(void)
{
	struct ow_own_clock clock;

	ow_own_clock_start(&clock, 1000);
	CHECK(ow_own_clock_read(&clock, 1500) == 500);
	CHECK(ow_own_clock_convert(&clock, 700) == 1700);
	CHECK(ow_own_clock_stop(&clock, 2000, 300) == 2000);
	CHECK(ow_own_clock_read(&clock, 2000) == 1000 && ow_own_clock_read(&clock, 2300) == 1000);
	CHECK(ow_own_clock_read(&clock, 2301) == 1001);
	/* A command of 50 ns that arrives in the stall. */
	CHECK(ow_own_clock_convert(&clock, ow_own_clock_read(&clock, 2100) + 50) == 2350);
	/* A stall within a stall lasts from the end of the first. */
	CHECK(ow_own_clock_stop(&clock, 2200, 100) == 2300);
	CHECK(ow_own_clock_read(&clock, 2400) == 1000 && clock.stalled_ns == 400);
}

static void test_clock_runs_slower_when_throttled(void)
{
	struct ow_own_clock clock;

	ow_own_clock_start(&clock, 0);
	ow_own_clock_set_speed(&clock, 1000, 500);
	CHECK(ow_own_clock_read(&clock, 3000) == 2000);
	CHECK(ow_own_clock_convert(&clock, 2100) == 3200);
	ow_own_clock_stop(&clock, 3000, 10);
	ow_own_clock_set_speed(&clock, 3005, OW_FULL_SPEED);
	CHECK(ow_own_clock_read(&clock, 3010) == 2000 && ow_own_clock_read(&clock, 3020) == 2010);
	/* No overflow after a year. */
	ow_own_clock_set_speed(&clock, 3020, 700);
	CHECK(ow_own_clock_read(&clock, 3020 + 31536000ULL * 1000 * MS) ==
	      2010 + 31536000ULL * 700 * MS);
}

static void test_newest_episodes_are_kept(void)
{
	static struct ow_episodes episodes;

	for (uint64_t i = 0; i < OW_EPISODES_KEPT + 3; i++)
		ow_episodes_add(&episodes, OW_EPISODE_STALL, 10 * i, 10 * i + 5);
	ow_episodes_switch(&episodes, OW_EPISODE_WAY, 7, 0);
	CHECK(!ow_episodes_get(&episodes, OW_EPISODE_WAY, 0));
	ow_episodes_switch(&episodes, OW_EPISODE_WAY, 8, 1);
	ow_episodes_switch(&episodes, OW_EPISODE_WAY, 9, 1);
	CHECK(ow_episodes_get(&episodes, OW_EPISODE_WAY, 0)->begin_ns == 8);
	CHECK(!ow_episodes_get(&episodes, OW_EPISODE_WAY, 0)->end_ns);
	ow_episodes_switch(&episodes, OW_EPISODE_WAY, 11, 0);
	CHECK(ow_episodes_get(&episodes, OW_EPISODE_WAY, 0)->end_ns == 11);
	CHECK(ow_episodes_count_dropped(&episodes) == 3);
	CHECK(ow_episodes_get(&episodes, OW_EPISODE_STALL, 0)->begin_ns == 30);
	CHECK(ow_episodes_get(&episodes, OW_EPISODE_STALL, OW_EPISODES_KEPT - 1));
	CHECK(!ow_episodes_get(&episodes, OW_EPISODE_STALL, OW_EPISODES_KEPT));
}

static struct ow_drive *open_drive(bool timing)
{
	struct ow_drive *drive = malloc(sizeof(*drive));
	struct ow_drive_options options = {.serial = "TEST", .timing = timing};
	const char *why = NULL;

	ow_ftl_config_init(&options.config);
	ow_service_config_init(&options.service);
	options.config.user_bytes = USER;
	options.config.physical_bytes = USER + USER / 4;
	CHECK(drive);
	CHECK(!ow_drive_open(drive, &options, &why));
	return drive;
}

static void close_drive(struct ow_drive *drive)
{
	ow_drive_close(drive);
	free(drive);
}

/* Each kind of command that arrives in a stall is due at its end, with timing and without. */
static void test_commands_wait_for_the_end_of_a_stall(bool timing)
{
	struct ow_drive *drive = open_drive(timing);
	uint64_t begin_ns = ow_read_clock_ns(), end_ns;
	uint8_t data[UNIT] = {1};
	struct ow_due due[5];

	CHECK(!ow_drive_read(drive, 0, UNIT, &due[0]));
	CHECK(!due[0].at_ns == !timing && !due[0].stalled_ns);
	CHECK(!ow_apply_fault(drive, "stall=0:9000000"));
	CHECK(ow_drive_read_stalled_ns(drive) == 9000 * MS);
	end_ns = ow_episodes_get(&drive->episodes, OW_EPISODE_STALL, 0)->end_ns;
	CHECK(end_ns >= begin_ns + 9000 * MS);
	CHECK(!ow_drive_read(drive, 0, UNIT, &due[0]));
	CHECK(!ow_drive_write(drive, 0, data, UNIT, &due[1]));
	CHECK(!ow_drive_trim(drive, 0, UNIT, &due[2]));
	CHECK(!ow_drive_flush(drive, &due[3]));
	CHECK(!ow_drive_write_zeroes(drive, 0, UNIT, &due[4]));
	for (int i = 0; i < 5; i++) {
		CHECK(due[i].at_ns >= end_ns && due[i].at_ns < end_ns + 100 * MS);
		CHECK(timing || due[i].at_ns == end_ns);
		CHECK(due[i].stalled_ns == 9000 * MS);
	}
	close_drive(drive);
}

static void test_log_page_read_stalls_the_drive(void)
{
	struct ow_drive *drive = open_drive(false);
	uint64_t due_ns, now_ns = ow_read_clock_ns();

	CHECK(!ow_apply_fault(drive, "log-stall=02:5000000"));
	CHECK(!ow_check_log_fault(drive, OW_LOG_C0, &due_ns) && !due_ns);
	CHECK(!ow_check_log_fault(drive, OW_LOG_02, &due_ns));
	CHECK(due_ns >= now_ns + 5000 * MS);
	CHECK(ow_episodes_get(&drive->episodes, OW_EPISODE_LOG_STALL, 0)->end_ns == due_ns);
	/* The other pages wait as well. */
	CHECK(!ow_check_log_fault(drive, OW_LOG_C0, &now_ns) && now_ns == due_ns);
	CHECK(!ow_apply_fault(drive, "clear"));
	CHECK(!ow_check_log_fault(drive, OW_LOG_02, &now_ns) && now_ns == due_ns);
	close_drive(drive);
}

static void sleep_ms(long ms)
{
	struct timespec time = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&time, NULL);
}

static void test_first_command_after_idle_time_wakes_the_drive(void)
{
	struct ow_drive *drive = open_drive(true);
	const struct ow_episode *episode;
	struct ow_due first, second;

	CHECK(!ow_apply_fault(drive, "sleep-after=50000:20000"));
	sleep_ms(60);
	CHECK(!ow_drive_read(drive, 0, UNIT, &first));
	CHECK(!ow_drive_read(drive, 0, UNIT, &second));
	episode = ow_episodes_get(&drive->episodes, OW_EPISODE_SLEEP_EXIT, 0);
	CHECK(episode && episode->end_ns == episode->begin_ns + 20 * MS);
	CHECK(first.at_ns >= episode->end_ns && second.at_ns >= first.at_ns);
	CHECK(drive->episodes.count[OW_EPISODE_SLEEP_EXIT] == 1);
	close_drive(drive);
}

static void test_periodic_stalls_keep_their_period(void)
{
	struct ow_drive *drive = open_drive(false);
	uint64_t set_ns = ow_read_clock_ns();
	uint64_t count, begin_ns;

	CHECK(!ow_apply_fault(drive, "stall=5000000:1000"));
	/* The second setting replaces the first. */
	CHECK(!ow_apply_fault(drive, "stall=50000:1000"));
	sleep_ms(520);
	pthread_mutex_lock(&drive->lock);
	count = drive->episodes.count[OW_EPISODE_STALL];
	CHECK(count >= 8 && count <= 11);
	for (uint64_t i = 0; i < count; i++) {
		begin_ns = ow_episodes_get(&drive->episodes, OW_EPISODE_STALL, i)->begin_ns;
		CHECK(begin_ns >= set_ns + (i + 1) * 50 * MS);
	}
	pthread_mutex_unlock(&drive->lock);
	CHECK(!ow_apply_fault(drive, "clear"));
	count = drive->episodes.count[OW_EPISODE_STALL];
	sleep_ms(120);
	CHECK(drive->episodes.count[OW_EPISODE_STALL] == count);
	close_drive(drive);
}

static void test_truth_lists_a_full_set_of_episodes(void)
{
	static char text[OW_FILE_MAX];
	struct ow_drive *drive = open_drive(false);
	int len;

	for (int kind = 0; kind < OW_EPISODE_KINDS; kind++)
		for (int i = 0; i < 2 * OW_EPISODES_KEPT; i++)
			ow_episodes_add(&drive->episodes, kind, UINT64_MAX - 1, UINT64_MAX);
	len = ow_write_truth_json(drive, text, sizeof(text));
	CHECK(len > 0 && text[len - 2] == '}' && text[len - 3] == '\n');
	close_drive(drive);
}

/* 400 MB/s at 2 K per GB and 50 s to cool: 40 K above idle in the end. */
static void test_temperature_approaches_its_limit_and_throttles(void)
{
	struct ow_thermal thermal = {.config = {{0, 60, 75}, 2000, 50000}};
	uint64_t light_ns = 0;

	for (int i = 0; i < 10000; i++) {
		ow_thermal_advance(&thermal, 100 * MS, 40000000);
		light_ns += thermal.level == OW_THERMAL_LIGHT && i < 9999 ? 100 * MS : 0;
	}
	CHECK(ow_thermal_read_celsius(&thermal) >= 79 && ow_thermal_read_celsius(&thermal) <= 80);
	CHECK(thermal.level == OW_THERMAL_HEAVY);
	CHECK(thermal.transitions[OW_THERMAL_LIGHT] == 1);
	CHECK(thermal.transitions[OW_THERMAL_HEAVY] == 1);
	CHECK(thermal.level_ns[OW_THERMAL_LIGHT] == light_ns && light_ns);
	/* 80 degrees is the warning temperature, which the drive only approaches. */
	CHECK(!thermal.critical_ns);
	/* The level ends 3 K below its begin. */
	while (thermal.level == OW_THERMAL_HEAVY)
		ow_thermal_advance(&thermal, 100 * MS, 0);
	CHECK(ow_thermal_read_celsius(&thermal) == 71);
	while (thermal.level == OW_THERMAL_LIGHT)
		ow_thermal_advance(&thermal, 100 * MS, 0);
	CHECK(ow_thermal_read_celsius(&thermal) == 56);
	CHECK(thermal.transitions[OW_THERMAL_LIGHT] == 2);
}

static void test_new_numbers_keep_the_temperature(void)
{
	struct ow_drive *drive = open_drive(true);
	uint8_t data[8 * UNIT] = {1};
	struct ow_due due;

	CHECK(!ow_apply_fault(drive, "thermal=60:90:9000000:1000000"));
	for (int i = 0; i < 128; i++)
		CHECK(!ow_drive_write(drive, 0, data, sizeof(data), &due));
	CHECK(!ow_apply_fault(drive, "thermal=60:90:0:1000000"));
	/* At least half of the writes have left the buffer. */
	CHECK(ow_thermal_read_celsius(&drive->thermal) >= 58);
	CHECK(!ow_apply_fault(drive, "clear"));
	CHECK(ow_thermal_read_celsius(&drive->thermal) == OW_IDLE_CELSIUS);
	CHECK(drive->clock.permille == OW_FULL_SPEED);
	close_drive(drive);
}

/* Reads of the units in order touch all dies in turn; the slow die has one of 32. */
static void test_slow_die_delays_its_reads_only(void)
{
	struct ow_drive *drive = open_drive(true);
	uint64_t own_ns, slow = 0, reads = 0;
	uint8_t data[8 * UNIT] = {1};
	struct ow_due due;

	for (uint64_t at = 0; at < USER; at += sizeof(data))
		CHECK(!ow_drive_write(drive, at, data, sizeof(data), &due));
	CHECK(!ow_drive_flush(drive, &due));
	CHECK(ow_apply_fault(drive, "slow-die=32:10000") == -EINVAL);
	CHECK(!ow_apply_fault(drive, "slow-die=3:100000"));
	sleep_ms(200);
	for (uint64_t at = 0; at < USER; at += sizeof(data), reads++) {
		own_ns = ow_read_clock_ns();
		CHECK(!ow_drive_read(drive, at, UNIT, &due));
		slow += due.at_ns > own_ns + 5 * MS;
		sleep_ms(due.at_ns > own_ns + 5 * MS ? 10 : 0);
	}
	CHECK(slow >= 1 && slow <= reads / 32 + 2);
	CHECK(ow_service_count_slowed(drive->service) == slow);
	CHECK(!ow_apply_fault(drive, "clear"));
	CHECK(ow_episodes_get(&drive->episodes, OW_EPISODE_SLOW_DIE, 0)->end_ns);
	close_drive(drive);
	drive = open_drive(false);
	CHECK(ow_apply_fault(drive, "slow-die=3:10000") == -EOPNOTSUPP);
	CHECK(ow_apply_fault(drive, "thermal=70:80:1:1000") == -EOPNOTSUPP);
	close_drive(drive);
}

int main(void)
{
	test_temperature_approaches_its_limit_and_throttles();
	test_new_numbers_keep_the_temperature();
	test_slow_die_delays_its_reads_only();
	test_clock_stops_in_a_stall();
	test_clock_runs_slower_when_throttled();
	test_newest_episodes_are_kept();
	test_commands_wait_for_the_end_of_a_stall(false);
	test_commands_wait_for_the_end_of_a_stall(true);
	test_log_page_read_stalls_the_drive();
	test_first_command_after_idle_time_wakes_the_drive();
	test_periodic_stalls_keep_their_period();
	test_truth_lists_a_full_set_of_episodes();
	return 0;
}
