/* SPDX-License-Identifier: MIT */
/* What the two binding files of the FTL share. */
#ifndef OPWATCH_PY_FTL_H
#define OPWATCH_PY_FTL_H

#include "_native/binding/native.h"

#include "ftl/core/ftl.h"

/* One number of a struct, by the name it has there. */
struct ow_py_field {
	const char *name;
	size_t offset;
	size_t size;
};

#define OW_PY_FIELD(type, name)                                                      \
	{                                                                            \
#name, offsetof(struct type, name), sizeof(((struct type *)0)->name) \
	}

struct ow_py_ftl {
	PyObject_HEAD struct ow_ftl *ftl;
	int busy; /* a call without the GIL is under way */
};

extern const struct ow_py_field ow_py_ftl_config_fields[];
extern const struct ow_py_field ow_py_ftl_counter_fields[];

/* Set @base's fields from the dict @values; a name that is no field raises ValueError. */
int ow_py_set_fields(void *base, const struct ow_py_field *fields, PyObject *values);
PyObject *ow_py_get_fields(const void *base, const struct ow_py_field *fields);

/* The drive, or NULL with an exception when another thread uses it. */
struct ow_ftl *ow_py_ftl_use(PyObject *object);
/* Keyword arguments of a workload and its state. The state comes back from ow_py_load_state(). */
int ow_py_parse_load(PyObject *zones, struct ow_ftl_workload *load);
PyObject *ow_py_load_state(const struct ow_ftl_workload *load);

#endif
