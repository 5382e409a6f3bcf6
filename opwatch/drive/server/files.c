// SPDX-License-Identifier: MIT
#include "files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CONTROL_MAX 256

typedef void (*page_fn)(uint8_t *page, const struct ow_page_facts *facts);

static int fill_page(struct ow_drive *drive, char *text, page_fn page, int bytes)
{
	struct ow_page_facts facts;

	ow_drive_read_reported(drive, &facts);
	page((uint8_t *)text, &facts);
	return bytes;
}

static int read_controller(struct ow_drive *drive, char *text)
{
	return fill_page(drive, text, ow_fill_identify_controller, OW_IDENTIFY_BYTES);
}

static int read_namespace(struct ow_drive *drive, char *text)
{
	return fill_page(drive, text, ow_fill_identify_namespace, OW_IDENTIFY_BYTES);
}

static int read_smart(struct ow_drive *drive, char *text)
{
	return fill_page(drive, text, ow_fill_log_smart, OW_LOG_BYTES);
}

static int read_endurance(struct ow_drive *drive, char *text)
{
	return fill_page(drive, text, ow_fill_log_endurance, OW_LOG_BYTES);
}

static int read_fdp(struct ow_drive *drive, char *text)
{
	return fill_page(drive, text, ow_fill_log_fdp, OW_FDP_BYTES);
}

static int read_ocp(struct ow_drive *drive, char *text)
{
	return fill_page(drive, text, ow_fill_log_ocp, OW_LOG_BYTES);
}

static int read_memblaze(struct ow_drive *drive, char *text)
{
	return fill_page(drive, text, ow_fill_log_memblaze, OW_LOG_BYTES);
}

static int read_monitor(struct ow_drive *drive, char *text)
{
	uint64_t now_ns = ow_read_clock_ns();
	struct ow_times times;

	ow_times_copy(&drive->times, now_ns, &times);
	ow_fill_log_monitor((uint8_t *)text, &times, now_ns, drive->started_ns);
	return OW_LOG_BYTES;
}

static int read_amazon(struct ow_drive *drive, char *text)
{
	struct ow_times times;

	ow_times_copy(&drive->times, ow_read_clock_ns(), &times);
	ow_fill_log_amazon((uint8_t *)text, &times);
	return OW_AMAZON_BYTES;
}

static int read_truth(struct ow_drive *drive, char *text)
{
	return ow_write_truth_json(drive, text, OW_FILE_MAX);
}

const struct ow_file ow_files[] = {
	{"identify-controller", OW_IDENTIFY_BYTES, -1, read_controller, NULL},
	{"identify-namespace", OW_IDENTIFY_BYTES, -1, read_namespace, NULL},
	{"log-02", OW_LOG_BYTES, OW_LOG_02, read_smart, NULL},
	{"log-09", OW_LOG_BYTES, OW_LOG_09, read_endurance, NULL},
	{"log-22", OW_FDP_BYTES, OW_LOG_22, read_fdp, NULL},
	{"log-c0", OW_LOG_BYTES, OW_LOG_C0, read_ocp, NULL},
	{"log-ca", OW_LOG_BYTES, OW_LOG_CA, read_memblaze, NULL},
	{"log-c3", OW_LOG_BYTES, OW_LOG_C3, read_monitor, NULL},
	{"log-d0", OW_AMAZON_BYTES, OW_LOG_D0, read_amazon, NULL},
	{"truth.json", 0, -1, read_truth, NULL},
	{"valid-map", 0, -1, NULL, ow_copy_valid_map},
	{"control", 0, -1, NULL, NULL},
};
const unsigned int ow_file_count = sizeof(ow_files) / sizeof(ow_files[0]);

struct ow_file_content {
	pthread_mutex_t lock; /* threads may share one open file */
	size_t len;
	char text[OW_FILE_MAX];
};

struct ow_file_content *ow_file_content_new(void)
{
	struct ow_file_content *content = malloc(sizeof(*content));

	if (content) {
		pthread_mutex_init(&content->lock, NULL);
		content->len = 0;
	}
	return content;
}

void ow_file_content_free(struct ow_file_content *content)
{
	if (content)
		pthread_mutex_destroy(&content->lock);
	free(content);
}

int ow_file_content_read(struct ow_file_content *content, struct ow_drive *drive,
			 const struct ow_file *file, char *text, size_t size, size_t offset)
{
	int ret = 0;

	pthread_mutex_lock(&content->lock);
	if (!offset) {
		ret = file->read(drive, content->text);
		content->len = ret < 0 ? 0 : ret;
	}
	if (ret >= 0) {
		offset = offset < content->len ? offset : content->len;
		size = size < content->len - offset ? size : content->len - offset;
		memcpy(text, content->text + offset, size);
		ret = size;
	}
	pthread_mutex_unlock(&content->lock);
	return ret;
}

int ow_run_control(struct ow_drive *drive, const char *data, size_t len)
{
	char words[CONTROL_MAX];

	if (!len || len >= sizeof(words))
		return -EINVAL;
	memcpy(words, data, len);
	words[len] = 0;
	words[strcspn(words, "\n")] = 0;
	if (!strcmp(words, "save"))
		return drive->options.state ? ow_state_save(drive) : 0;
	if (strncmp(words, "fault ", 6))
		return -EINVAL;
	return ow_apply_fault(drive, words + 6);
}
