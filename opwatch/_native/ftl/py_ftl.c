// SPDX-License-Identifier: MIT
/* opwatch._native.Ftl: see _native.pyi. */
#include "py_ftl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct ow_ftl *ow_py_get_drive(PyObject *object)
{
	struct ow_py_ftl *self = (struct ow_py_ftl *)object;

	if (self->is_busy || !self->ftl) {
		PyErr_SetString(PyExc_RuntimeError, "another thread is using this drive");
		return NULL;
	}
	return self->ftl;
}

int ow_py_parse_workload(PyObject *zones, struct ow_ftl_workload *load)
{
	Py_ssize_t count = zones ? PySequence_Size(zones) : 0;

	if (count < 0)
		return -1;
	if (count > OW_FTL_MAX_ZONES) {
		PyErr_Format(PyExc_ValueError, "more than %d zones", OW_FTL_MAX_ZONES);
		return -1;
	}
	for (Py_ssize_t i = 0; i < count; i++) {
		struct ow_ftl_zone *zone = &load->zones[i];
		unsigned long long start_bytes, len_bytes;
		PyObject *item = PySequence_GetItem(zones, i);
		int ok = item && PyTuple_Check(item) &&
			 PyArg_ParseTuple(item, "KKII", &start_bytes, &len_bytes, &zone->weight,
					  &zone->stream);

		Py_XDECREF(item);
		if (!ok) {
			if (!PyErr_Occurred())
				PyErr_SetString(PyExc_TypeError,
						"a zone is a tuple of four numbers");
			return -1;
		}
		zone->start_bytes = start_bytes;
		zone->len_bytes = len_bytes;
	}
	load->zone_count = count;
	return 0;
}

PyObject *ow_py_build_workload_state(const struct ow_ftl_workload *load)
{
	return Py_BuildValue("(KKKK)", (unsigned long long)load->rng,
			     (unsigned long long)load->position, (unsigned long long)load->writes,
			     (unsigned long long)load->trims);
}

static PyObject *ftl_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct ow_ftl_config config;
	struct ow_py_ftl *self;
	PyObject *values;
	const char *why;
	int ret;

	ow_ftl_config_init(&config);
	if ((kwargs && PyDict_Size(kwargs)) || !PyArg_ParseTuple(args, "O!", &PyDict_Type, &values))
		return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "Ftl(config)");
	if (ow_py_set_fields(&config, ow_py_ftl_config_fields, values))
		return NULL;
	if (ow_ftl_config_check(&config, &why))
		return PyErr_Format(PyExc_ValueError, "%s", why);
	self = (struct ow_py_ftl *)PyType_GenericAlloc(type, 0);
	if (!self)
		return NULL;
	ret = ow_ftl_create(&self->ftl, &config);
	if (ret) {
		Py_DECREF(self);
		return ow_py_raise(ret, "cannot create the drive");
	}
	return (PyObject *)self;
}

static void ftl_dealloc(PyObject *object)
{
	ow_ftl_destroy(((struct ow_py_ftl *)object)->ftl);
	ow_py_free(object);
}

static PyObject *raise_or_none(int ret, const char *what)
{
	if (ret < 0)
		return ow_py_raise(ret, what);
	Py_RETURN_NONE;
}

static PyObject *ftl_write(PyObject *self, PyObject *args)
{
	unsigned long long offset_bytes, len_bytes;
	struct ow_ftl *ftl = ow_py_get_drive(self);
	unsigned int stream = 0;

	if (!ftl || !PyArg_ParseTuple(args, "KK|I", &offset_bytes, &len_bytes, &stream))
		return NULL;
	return raise_or_none(ow_ftl_write(ftl, offset_bytes, len_bytes, stream), "write");
}

static PyObject *ftl_write_zeroes(PyObject *self, PyObject *args)
{
	unsigned long long offset_bytes, len_bytes;
	struct ow_ftl *ftl = ow_py_get_drive(self);
	unsigned int stream = 0;

	if (!ftl || !PyArg_ParseTuple(args, "KK|I", &offset_bytes, &len_bytes, &stream))
		return NULL;
	return raise_or_none(ow_ftl_write_zeroes(ftl, offset_bytes, len_bytes, stream),
			     "write zeroes");
}

#define RANGE_METHOD(verb)                                                                \
	static PyObject *ftl_##verb(PyObject *self, PyObject *args)                       \
	{                                                                                 \
		unsigned long long offset_bytes, len_bytes;                               \
		struct ow_ftl *ftl = ow_py_get_drive(self);                               \
                                                                                          \
		if (!ftl || !PyArg_ParseTuple(args, "KK", &offset_bytes, &len_bytes))     \
			return NULL;                                                      \
		return raise_or_none(ow_ftl_##verb(ftl, offset_bytes, len_bytes), #verb); \
	}

#define PLAIN_METHOD(verb)                                                        \
	static PyObject *ftl_##verb(PyObject *self, PyObject *Py_UNUSED(ignored)) \
	{                                                                         \
		struct ow_ftl *ftl = ow_py_get_drive(self);                       \
                                                                                  \
		return ftl ? raise_or_none(ow_ftl_##verb(ftl), #verb) : NULL;     \
	}

RANGE_METHOD(read)
RANGE_METHOD(trim)
PLAIN_METHOD(flush)
PLAIN_METHOD(format)
PLAIN_METHOD(power_cycle)
PLAIN_METHOD(power_loss)
PLAIN_METHOD(die_fail)

static PyObject *ftl_idle(PyObject *self, PyObject *args)
{
	struct ow_ftl *ftl = ow_py_get_drive(self);
	unsigned long long idle_ns;

	if (!ftl || !PyArg_ParseTuple(args, "K", &idle_ns))
		return NULL;
	return raise_or_none(ow_ftl_idle(ftl, idle_ns), "idle");
}

static PyObject *ftl_is_mapped(PyObject *self, PyObject *args)
{
	struct ow_ftl *ftl = ow_py_get_drive(self);
	unsigned long long offset_bytes;
	int ret;

	if (!ftl || !PyArg_ParseTuple(args, "K", &offset_bytes))
		return NULL;
	ret = ow_ftl_is_mapped(ftl, offset_bytes);
	return ret < 0 ? ow_py_raise(ret, "is mapped") : PyBool_FromLong(ret);
}

static PyObject *ftl_counters(PyObject *self, PyObject *Py_UNUSED(ignored))
{
	struct ow_ftl *ftl = ow_py_get_drive(self);
	struct ow_ftl_counters counters;

	if (!ftl)
		return NULL;
	ow_ftl_get_counters(ftl, &counters);
	return ow_py_get_fields(&counters, ow_py_ftl_counter_fields);
}

static PyObject *ftl_set_owner(PyObject *self, PyObject *args)
{
	struct ow_ftl *ftl = ow_py_get_drive(self);
	unsigned char owner;

	if (!ftl || !PyArg_ParseTuple(args, "b", &owner))
		return NULL;
	return raise_or_none(ow_ftl_set_owner(ftl, owner), "set owner");
}

static PyObject *ftl_owner_counters(PyObject *self, PyObject *args)
{
	struct ow_ftl *ftl = ow_py_get_drive(self);
	struct ow_ftl_owner_counters counters;
	unsigned char owner;

	if (!ftl || !PyArg_ParseTuple(args, "b", &owner))
		return NULL;
	ow_ftl_get_owner_counters(ftl, owner, &counters);
	return ow_py_get_fields(&counters, ow_py_ftl_owner_fields);
}

static PyObject *ftl_config(PyObject *self, PyObject *Py_UNUSED(ignored))
{
	struct ow_ftl *ftl = ow_py_get_drive(self);
	struct ow_ftl_config config;

	if (!ftl)
		return NULL;
	ow_ftl_get_config(ftl, &config);
	return ow_py_get_fields(&config, ow_py_ftl_config_fields);
}

static PyObject *ftl_run(PyObject *self, PyObject *args)
{
	struct ow_py_ftl *object = (struct ow_py_ftl *)self;
	struct ow_ftl *ftl = ow_py_get_drive(self);
	unsigned long long pages, rng, position;
	struct ow_ftl_workload load = {0};
	PyObject *zones;
	int sequential, ret;

	if (!ftl || !PyArg_ParseTuple(args, "KOpIKK", &pages, &zones, &sequential, &load.trim_ppm,
				      &rng, &position))
		return NULL;
	if (ow_py_parse_workload(zones, &load))
		return NULL;
	load.sequential = sequential;
	load.rng = rng;
	load.position = position;
	object->is_busy = 1;
	Py_BEGIN_ALLOW_THREADS ret = ow_ftl_run(ftl, &load, pages);
	Py_END_ALLOW_THREADS object->is_busy = 0;
	return ret ? ow_py_raise(ret, "run") : ow_py_build_workload_state(&load);
}

/* A growing buffer to save to, or a buffer to load from. Neither needs the GIL. */
struct saved_state {
	char *data;
	size_t len;
	size_t size;
};

static int put_state(void *ctx, const void *data, size_t len)
{
	struct saved_state *saved = ctx;

	if (saved->len + len > saved->size) {
		size_t size = 2 * (saved->len + len);
		char *larger = realloc(saved->data, size);

		if (!larger)
			return -ENOMEM;
		saved->data = larger;
		saved->size = size;
	}
	memcpy(saved->data + saved->len, data, len);
	saved->len += len;
	return 0;
}

static int get_state(void *ctx, void *data, size_t len)
{
	struct saved_state *saved = ctx;

	if (saved->size - saved->len < len)
		return -EBADMSG;
	memcpy(data, saved->data + saved->len, len);
	saved->len += len;
	return 0;
}

static PyObject *ftl_save(PyObject *self, PyObject *Py_UNUSED(ignored))
{
	struct ow_ftl *ftl = ow_py_get_drive(self);
	struct saved_state saved = {0};
	PyObject *bytes;
	int ret;

	if (!ftl)
		return NULL;
	ret = ow_ftl_save(ftl, put_state, &saved);
	bytes = ret ? ow_py_raise(ret, "save") : PyBytes_FromStringAndSize(saved.data, saved.len);
	free(saved.data);
	return bytes;
}

static PyObject *ftl_load(PyObject *type, PyObject *args)
{
	PyTypeObject *class = (PyTypeObject *)type;
	struct ow_py_ftl *self;
	struct saved_state saved = {0};
	Py_buffer view;
	int ret;

	if (!PyArg_ParseTuple(args, "y*", &view))
		return NULL;
	saved.data = view.buf;
	saved.size = view.len;
	self = (struct ow_py_ftl *)PyType_GenericAlloc(class, 0);
	ret = self ? ow_ftl_load(&self->ftl, get_state, &saved) : 0;
	PyBuffer_Release(&view);
	if (!self || !ret)
		return (PyObject *)self;
	Py_DECREF(self);
	return ow_py_raise(ret, "not a complete saved drive of this version");
}

static PyObject *ftl_check(PyObject *self, PyObject *Py_UNUSED(ignored))
{
	struct ow_ftl *ftl = ow_py_get_drive(self);
	const char *why = NULL;

	if (!ftl)
		return NULL;
	if (ow_ftl_check(ftl, &why))
		return PyUnicode_FromString(why);
	Py_RETURN_NONE;
}

static PyObject *ftl_set_trim_mode(PyObject *self, PyObject *args)
{
	struct ow_ftl *ftl = ow_py_get_drive(self);
	unsigned int mode;

	if (!ftl || !PyArg_ParseTuple(args, "I", &mode))
		return NULL;
	if (mode > OW_FTL_TRIM_IGNORE)
		return PyErr_Format(PyExc_ValueError, "unknown trim mode %u", mode);
	ow_ftl_set_trim_mode(ftl, mode);
	Py_RETURN_NONE;
}

static PyMethodDef ftl_methods[] = {
	{"write", ftl_write, METH_VARARGS, NULL},
	{"write_zeroes", ftl_write_zeroes, METH_VARARGS, NULL},
	{"read", ftl_read, METH_VARARGS, NULL},
	{"trim", ftl_trim, METH_VARARGS, NULL},
	{"flush", ftl_flush, METH_NOARGS, NULL},
	{"format", ftl_format, METH_NOARGS, NULL},
	{"power_cycle", ftl_power_cycle, METH_NOARGS, NULL},
	{"power_loss", ftl_power_loss, METH_NOARGS, NULL},
	{"die_fail", ftl_die_fail, METH_NOARGS, NULL},
	{"idle", ftl_idle, METH_VARARGS, NULL},
	{"is_mapped", ftl_is_mapped, METH_VARARGS, NULL},
	{"counters", ftl_counters, METH_NOARGS, NULL},
	{"set_owner", ftl_set_owner, METH_VARARGS, NULL},
	{"owner_counters", ftl_owner_counters, METH_VARARGS, NULL},
	{"config", ftl_config, METH_NOARGS, NULL},
	{"run", ftl_run, METH_VARARGS, NULL},
	{"save", ftl_save, METH_NOARGS, NULL},
	{"load", ftl_load, METH_VARARGS | METH_CLASS, NULL},
	{"check", ftl_check, METH_NOARGS, NULL},
	{"set_trim_mode", ftl_set_trim_mode, METH_VARARGS, NULL},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot ftl_slots[] = {
	{Py_tp_new, ftl_new},
	{Py_tp_dealloc, ftl_dealloc},
	{Py_tp_methods, ftl_methods},
	{0, NULL},
};

static PyType_Spec ftl_spec = {
	.name = "opwatch._native.Ftl",
	.basicsize = sizeof(struct ow_py_ftl),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = ftl_slots,
};

int ow_py_add_ftl(PyObject *module)
{
	return ow_py_add_type(module, &ftl_spec);
}
