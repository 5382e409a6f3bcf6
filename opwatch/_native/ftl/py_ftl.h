/* SPDX-License-Identifier: MIT */
/* Declarations shared by the FTL's binding files. */
#ifndef OPWATCH_PY_FTL_H
#define OPWATCH_PY_FTL_H

#include "_native/binding/native.h"

#include "ftl/core/ftl.h"

/* A numeric field of a struct, by name. */
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
	int is_busy; /* a call without the GIL is in progress */
};

extern const struct ow_py_field ow_py_ftl_config_fields[];
extern const struct ow_py_field ow_py_ftl_counter_fields[];
extern const struct ow_py_field ow_py_ftl_owner_fields[];

/* Set @base's fields from the dict @values. An unknown name raises ValueError. */
int ow_py_set_fields(void *base, const struct ow_py_field *fields, PyObject *values);
PyObject *ow_py_get_fields(const void *base, const struct ow_py_field *fields);

struct ow_service;

/* The type Ftl. */
extern PyTypeObject *ow_py_drive_type;
/* Return the clock, or NULL with an exception unless it is a Service of @drive. */
struct ow_service *ow_py_get_service(PyObject *object, PyObject *drive);
/* Return the drive, or NULL with an exception if another thread uses it. */
struct ow_ftl *ow_py_get_drive(PyObject *object);
/* Parse a workload and its state. ow_py_build_workload_state() returns the state. */
int ow_py_parse_workload(PyObject *zones, struct ow_ftl_workload *load);
PyObject *ow_py_build_workload_state(const struct ow_ftl_workload *load);

#endif
