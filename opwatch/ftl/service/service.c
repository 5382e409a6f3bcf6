// SPDX-License-Identifier: MIT
/* Virtual time of single I/Os: turns the FTL's operations into busy time of the dies. */
#include "ftl/core/core.h"
#include "service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_S 1000000000ULL

/* The FTL's counters at the last reading. */
struct progress {
	uint64_t host_pages;
	uint64_t slc_pages;
	uint64_t moved_pages;
	uint64_t read_pages;
	uint64_t erases;
};

struct ow_service {
	struct ow_service_config config;
	struct progress progress;
	uint64_t *die_free_ns;
	uint64_t *channel_free_ns;
	uint64_t *unit_done_ns; /* ring: completion times of one buffer-full of programs */
	uint64_t units;		/* programs started */
	uint32_t unit_slots;
	uint32_t next_die;
	uint64_t unit_bytes;
	uint64_t filling_bytes; /* for the next program */
	uint64_t filling_slc_bytes;
	uint64_t erased_bytes; /* not yet charged */
	uint32_t next_erase_die;
	uint64_t debt_pages; /* moved in the map, not yet programmed on the dies */
	uint64_t controller_free_ns;
	uint64_t last_done_ns;
	uint64_t busy_since_ns;
	uint64_t rng;
	uint64_t slowed; /* operations of the slow die */
	uint32_t slow_die;
	uint32_t slow_permille; /* 0: all dies are equal */
	bool synced;
};

void ow_service_config_init(struct ow_service_config *config)
{
	*config = (struct ow_service_config){
		.dies = 32,
		.planes = 2,
		.channels = 8,
		.page_bytes = 16384,
		.block_bytes = 4 << 20,
		.read_ns = 60000,
		.program_ns = 700000,
		.program_slc_ns = 200000,
		.erase_ns = 5000000,
		.suspend_ns = 20000,
		.channel_bytes_per_s = 800000000,
		.host_bytes_per_s = 3200000000,
		.command_ns = 2000,
		.latency_ns = 12000,
		.buffer_bytes = 16 << 20,
		.jitter_permille = 200,
		.idle_after_ns = 100000000,
		.throttle_permille = 1000,
		.seed = 1,
	};
}

int ow_service_create(struct ow_service **out, const struct ow_service_config *config)
{
	uint64_t unit = (uint64_t)config->planes * config->page_bytes;
	struct ow_service *service;

	if (!config->dies || !config->channels || !unit || !config->block_bytes ||
	    !config->channel_bytes_per_s || !config->host_bytes_per_s ||
	    !config->throttle_permille || config->jitter_permille > 1000 ||
	    config->buffer_bytes / unit > 1 << 24)
		return -EINVAL;
	service = calloc(1, sizeof(*service));
	if (!service)
		return -ENOMEM;
	service->config = *config;
	service->unit_bytes = unit;
	service->unit_slots = config->buffer_bytes / unit + 1;
	service->rng = config->seed;
	service->die_free_ns = calloc(config->dies, sizeof(uint64_t));
	service->channel_free_ns = calloc(config->channels, sizeof(uint64_t));
	service->unit_done_ns = calloc(service->unit_slots, sizeof(uint64_t));
	if (!service->die_free_ns || !service->channel_free_ns || !service->unit_done_ns) {
		ow_service_destroy(service);
		return -ENOMEM;
	}
	*out = service;
	return 0;
}

void ow_service_destroy(struct ow_service *service)
{
	if (!service)
		return;
	free(service->die_free_ns);
	free(service->channel_free_ns);
	free(service->unit_done_ns);
	free(service);
}

static uint64_t max_ns(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static bool is_throttled(const struct ow_service *service, uint64_t now_ns)
{
	uint64_t after = service->config.throttle_after_ns;

	return after && now_ns - service->busy_since_ns >= after;
}

/* Return how long an operation of @ns takes on @die. */
static uint64_t scale_for_die(struct ow_service *service, uint32_t die, uint64_t ns)
{
	if (!service->slow_permille || die != service->slow_die)
		return ns;
	service->slowed++;
	return ns * service->slow_permille / 1000;
}

static uint64_t draw_program_ns(struct ow_service *service, uint64_t now_ns, uint64_t mean_ns)
{
	uint64_t spread = mean_ns * service->config.jitter_permille / 1000;

	if (spread)
		mean_ns += ow_rng_below(&service->rng, 2 * spread + 1) - spread;
	if (is_throttled(service, now_ns))
		mean_ns = mean_ns * service->config.throttle_permille / 1000;
	return mean_ns;
}

/* Transfer one unit to or from @die over its channel. Returns the time of completion. */
static uint64_t transfer_unit(struct ow_service *service, uint32_t die, uint64_t from_ns,
			      uint64_t bytes)
{
	uint64_t *free_ns = &service->channel_free_ns[die % service->config.channels];

	*free_ns =
		max_ns(*free_ns, from_ns) + bytes * NS_PER_S / service->config.channel_bytes_per_s;
	return *free_ns;
}

/* Program one unit on the next die. A @moved unit is read first. */
static uint64_t program_unit(struct ow_service *service, uint64_t now_ns, uint64_t mean_ns,
			     bool moved)
{
	uint32_t die = service->next_die++ % service->config.dies;
	uint64_t at = transfer_unit(service, die, now_ns, service->unit_bytes);

	at = max_ns(at, service->die_free_ns[die]);
	/* Valid pages are spread evenly over the dies, so charge the read to the same die. */
	if (moved)
		at += scale_for_die(service, die, service->config.read_ns);
	service->die_free_ns[die] =
		at + scale_for_die(service, die, draw_program_ns(service, now_ns, mean_ns));
	return service->die_free_ns[die];
}

/*
 * Program moved pages on the dies. With gc_burst, or without room, all at once; else a share per
 * host page such that the debt is paid when the room is used up. Real drives pace their collection
 * like this to avoid stalls.
 */
static void pay_debt(struct ow_service *service, const struct ow_ftl *ftl, uint64_t now_ns,
		     uint64_t host_pages)
{
	uint64_t unit_pages = service->unit_bytes >> ftl->iu_shift, pay = service->debt_pages;
	int64_t room = ftl->room - ftl->low_room;

	unit_pages = unit_pages ? unit_pages : 1;
	if (!service->config.gc_burst && room > (int64_t)host_pages)
		pay = pay * host_pages / room;
	for (; service->debt_pages && pay >= unit_pages; pay -= unit_pages) {
		service->debt_pages -= unit_pages;
		program_unit(service, now_ns, service->config.program_ns, true);
	}
}

/* Program a host unit. The buffer holds the unit until the program ends. */
static void program_host(struct ow_service *service, uint64_t now_ns, uint64_t mean_ns)
{
	uint64_t done = program_unit(service, now_ns, mean_ns, false);

	service->unit_done_ns[service->units++ % service->unit_slots] = done;
}

static void read_progress(const struct ow_ftl *ftl, struct progress *progress)
{
	const uint64_t *by = ftl->pages_by;

	progress->slc_pages = ftl->counters.slc_write_bytes >> ftl->iu_shift;
	progress->host_pages = by[OW_BY_HOST] - progress->slc_pages;
	progress->moved_pages = by[OW_BY_GC] + by[OW_BY_FOLD] + by[OW_BY_WEAR] + by[OW_BY_REBUILD];
	progress->read_pages = ftl->read_pages;
	progress->erases = ftl->counters.erases;
}

/*
 * Erase block by block over the dies, because a scaled drive has smaller superblocks than a real
 * one.
 */
static void charge_erases(struct ow_service *service, const struct ow_ftl *ftl, uint64_t now_ns,
			  uint64_t erases)
{
	uint64_t at_once = service->config.planes * service->config.block_bytes;

	service->erased_bytes += erases * ftl->config.superblock_bytes;
	for (; service->erased_bytes >= at_once; service->erased_bytes -= at_once) {
		uint32_t die = service->next_erase_die++ % service->config.dies;
		uint64_t *free_ns = &service->die_free_ns[die];

		*free_ns = max_ns(*free_ns, now_ns) +
			   scale_for_die(service, die, service->config.erase_ns);
	}
}

/* Convert the FTL's operations since the last reading into work for the dies. */
static void charge_operations(struct ow_service *service, const struct ow_ftl *ftl, uint64_t now_ns)
{
	const struct ow_service_config *config = &service->config;
	struct progress before = service->progress, *now = &service->progress;
	uint64_t host_pages;

	read_progress(ftl, now);
	host_pages = now->host_pages - before.host_pages + now->slc_pages - before.slc_pages;
	service->debt_pages += now->moved_pages - before.moved_pages;
	charge_erases(service, ftl, now_ns, now->erases - before.erases);
	/*
	 * Only whole units are programmed; fractions stay in the filling counters, because paced
	 * payment would lose them.
	 */
	service->filling_bytes += (now->host_pages - before.host_pages) << ftl->iu_shift;
	service->filling_slc_bytes += (now->slc_pages - before.slc_pages) << ftl->iu_shift;
	for (; service->filling_bytes >= service->unit_bytes;
	     service->filling_bytes -= service->unit_bytes) {
		pay_debt(service, ftl, now_ns, max_ns(service->unit_bytes >> ftl->iu_shift, 1));
		program_host(service, now_ns, config->program_ns);
	}
	for (; service->filling_slc_bytes >= service->unit_bytes;
	     service->filling_slc_bytes -= service->unit_bytes) {
		pay_debt(service, ftl, now_ns, max_ns(service->unit_bytes >> ftl->iu_shift, 1));
		program_host(service, now_ns, config->program_slc_ns);
	}
	if (!host_pages)
		pay_debt(service, ftl, now_ns, UINT32_MAX);
}

/* Return the time at which the buffer has room: the end of the program one buffer-full ago. */
static uint64_t find_buffer_free_ns(const struct ow_service *service)
{
	return service->unit_done_ns[service->units % service->unit_slots];
}

static uint64_t read_units(struct ow_service *service, const struct ow_ftl *ftl,
			   const struct ow_service_io *io, uint64_t at)
{
	uint64_t done = at, step = service->unit_bytes, end = io->offset_bytes + io->len_bytes;

	for (uint64_t offset = io->offset_bytes; offset < end; offset += step) {
		uint32_t ppn = ftl->l2p[offset >> ftl->iu_shift];
		uint64_t bytes = end - offset < step ? end - offset : step, ready, read_ns;
		uint32_t die;

		if (!ppn)
			continue;
		die = (((uint64_t)ppn << ftl->iu_shift) / service->unit_bytes) %
		      service->config.dies;
		ready = max_ns(service->die_free_ns[die], at);
		if (ready > at + service->config.suspend_ns)
			ready = at + service->config.suspend_ns;
		read_ns = scale_for_die(service, die, service->config.read_ns);
		ready += read_ns;
		/* The interrupted program ends later by the read's duration. */
		service->die_free_ns[die] = max_ns(service->die_free_ns[die] + read_ns, ready);
		done = max_ns(done, transfer_unit(service, die, ready, bytes));
	}
	return done;
}

static uint64_t find_dies_free_ns(const struct ow_service *service, uint64_t at)
{
	for (uint32_t die = 0; die < service->config.dies; die++)
		at = max_ns(at, service->die_free_ns[die]);
	return at;
}

static uint64_t flush_buffer(struct ow_service *service, uint64_t at)
{
	uint64_t done = find_dies_free_ns(service, at) + service->config.flush_ns;

	if (service->config.flush_stops)
		service->controller_free_ns = done;
	return done;
}

void ow_service_sync(struct ow_service *service, const struct ow_ftl *ftl)
{
	read_progress(ftl, &service->progress);
	service->synced = true;
}

int ow_service_pause(struct ow_service *service, struct ow_ftl *ftl, uint64_t pause_ns)
{
	int ret = 0;

	if (service->config.idle_after_ns && pause_ns >= service->config.idle_after_ns) {
		ret = ow_ftl_idle(ftl, pause_ns);
		/* Idle work happens within the pause, so it delays no host I/O. */
		ow_service_sync(service, ftl);
		service->debt_pages = 0;
	}
	if (pause_ns >= max_ns(service->config.throttle_pause_ns, 1))
		service->busy_since_ns = service->last_done_ns + pause_ns;
	service->last_done_ns += pause_ns;
	return ret;
}

int ow_service_execute(struct ow_ftl *ftl, const struct ow_service_io *io)
{
	int ret = ow_ftl_set_owner(ftl, io->owner);

	if (ret)
		return ret;
	switch (io->op) {
	case OW_SERVICE_READ:
		return ow_ftl_read(ftl, io->offset_bytes, io->len_bytes);
	case OW_SERVICE_WRITE:
		return ow_ftl_write(ftl, io->offset_bytes, io->len_bytes, io->stream);
	case OW_SERVICE_TRIM:
		return ow_ftl_trim(ftl, io->offset_bytes, io->len_bytes);
	case OW_SERVICE_FLUSH:
		return ow_ftl_flush(ftl);
	}
	return -EINVAL;
}

int ow_service_submit(struct ow_service *service, struct ow_ftl *ftl,
		      const struct ow_service_io *io, uint64_t *done_ns)
{
	const struct ow_service_config *config = &service->config;
	uint64_t at;
	int ret = 0;

	if (!service->synced)
		ow_service_sync(service, ftl);
	if (io->arrive_ns > service->last_done_ns)
		ret = ow_service_pause(service, ftl, io->arrive_ns - service->last_done_ns);
	if (!ret)
		ret = ow_service_execute(ftl, io);
	if (ret)
		return ret;
	at = max_ns(io->arrive_ns, service->controller_free_ns) + config->command_ns;
	service->controller_free_ns = at;
	if (io->op == OW_SERVICE_READ || io->op == OW_SERVICE_WRITE) {
		at += io->len_bytes * NS_PER_S / config->host_bytes_per_s;
		service->controller_free_ns = at;
	} else if (io->op == OW_SERVICE_TRIM) {
		at += config->trim_ns;
		service->controller_free_ns = at;
	}
	charge_operations(service, ftl, at);
	if (io->op == OW_SERVICE_WRITE)
		at = max_ns(at, find_buffer_free_ns(service));
	else if (io->op == OW_SERVICE_READ)
		at = read_units(service, ftl, io, at);
	else if (io->op == OW_SERVICE_FLUSH && !ftl->config.plp)
		at = flush_buffer(service, at);
	*done_ns = at + config->latency_ns;
	service->last_done_ns = max_ns(service->last_done_ns, *done_ns);
	return 0;
}

int ow_service_slow_die(struct ow_service *service, uint32_t die, uint32_t permille)
{
	if (die >= service->config.dies)
		return -EINVAL;
	service->slow_die = die;
	service->slow_permille = permille;
	return 0;
}

uint64_t ow_service_count_slowed(const struct ow_service *service)
{
	return service->slowed;
}

uint64_t ow_service_get_now_ns(const struct ow_service *service)
{
	return service->last_done_ns;
}
