// SPDX-License-Identifier: MIT
/* Converts C structs to and from Python dicts by field name. */
#include "py_ftl.h"
#include "ftl/core/config_fields.h"

#include <string.h>

#define CONFIG(name)  OW_PY_FIELD(ow_ftl_config, name)
#define COUNTER(name) OW_PY_FIELD(ow_ftl_counters, name)
#define OWNER(name)   OW_PY_FIELD(ow_ftl_owner_counters, name)

const struct ow_py_field ow_py_ftl_config_fields[] = {
	OW_FTL_CONFIG_FIELDS(CONFIG),
	{NULL, 0, 0},
};

const struct ow_py_field ow_py_ftl_counter_fields[] = {
	COUNTER(host_write_bytes),
	COUNTER(host_read_bytes),
	COUNTER(host_writes),
	COUNTER(host_reads),
	COUNTER(host_flushes),
	COUNTER(coalesced_bytes),
	COUNTER(nand_write_bytes),
	COUNTER(nand_write_host_bytes),
	COUNTER(nand_write_gc_bytes),
	COUNTER(nand_write_rmw_bytes),
	COUNTER(nand_write_fold_bytes),
	COUNTER(nand_write_wear_bytes),
	COUNTER(nand_write_rebuild_bytes),
	COUNTER(nand_read_bytes),
	COUNTER(slc_write_bytes),
	COUNTER(trim_bytes),
	COUNTER(trim_ignored_bytes),
	COUNTER(trims),
	COUNTER(write_zeroes_bytes),
	COUNTER(gc_victims),
	COUNTER(erases),
	COUNTER(power_cycles),
	COUNTER(unsafe_shutdowns),
	COUNTER(lost_bytes),
	COUNTER(media_errors),
	COUNTER(formats),
	COUNTER(physical_bytes),
	COUNTER(user_bytes),
	COUNTER(valid_bytes),
	COUNTER(pending_bytes),
	COUNTER(buffered_bytes),
	COUNTER(slc_used_bytes),
	COUNTER(slc_limit_bytes),
	COUNTER(room_bytes),
	COUNTER(superblocks),
	COUNTER(free_superblocks),
	COUNTER(bad_superblocks),
	COUNTER(failed_dies),
	COUNTER(erase_min),
	COUNTER(erase_max),
	COUNTER(erase_avg_milli),
	COUNTER(percentage_used),
	COUNTER(read_only),
	{NULL, 0, 0},
};

const struct ow_py_field ow_py_ftl_owner_fields[] = {
	OWNER(host_write_bytes),      OWNER(nand_write_bytes),	       OWNER(nand_write_host_bytes),
	OWNER(nand_write_gc_bytes),   OWNER(nand_write_rmw_bytes),     OWNER(nand_write_fold_bytes),
	OWNER(nand_write_wear_bytes), OWNER(nand_write_rebuild_bytes), {NULL, 0, 0},
};

static int set_field(void *base, const struct ow_py_field *field, PyObject *value)
{
	unsigned long long number = PyLong_AsUnsignedLongLong(value);
	unsigned char *at = (unsigned char *)base + field->offset;

	if (PyErr_Occurred())
		return -1;
	if (field->size == 8) {
		memcpy(at, &number, 8);
	} else if (field->size == 4 && number <= UINT32_MAX) {
		memcpy(at, &(uint32_t){number}, 4);
	} else if (field->size == 1 && number <= 1) {
		*at = number;
	} else {
		PyErr_Format(PyExc_ValueError, "%s is out of range: %llu", field->name, number);
		return -1;
	}
	return 0;
}

int ow_py_set_fields(void *base, const struct ow_py_field *fields, PyObject *values)
{
	PyObject *key, *value;
	Py_ssize_t at = 0;

	while (PyDict_Next(values, &at, &key, &value)) {
		const struct ow_py_field *field = fields;
		const char *name = PyUnicode_AsUTF8AndSize(key, NULL);

		if (!name)
			return -1;
		while (field->name && strcmp(field->name, name))
			field++;
		if (!field->name) {
			PyErr_Format(PyExc_ValueError, "unknown setting %s", name);
			return -1;
		}
		if (set_field(base, field, value))
			return -1;
	}
	return 0;
}

PyObject *ow_py_get_fields(const void *base, const struct ow_py_field *fields)
{
	PyObject *dict = PyDict_New();

	for (; dict && fields->name; fields++) {
		const unsigned char *at = (const unsigned char *)base + fields->offset;
		uint64_t number = 0;
		PyObject *value;

		/* Little-endian: the low bytes come first. */
		memcpy(&number, at, fields->size);
		value = PyLong_FromUnsignedLongLong(number);
		if (!value || PyDict_SetItemString(dict, fields->name, value))
			Py_CLEAR(dict);
		Py_XDECREF(value);
	}
	return dict;
}
