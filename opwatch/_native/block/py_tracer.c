// SPDX-License-Identifier: MIT
/* opwatch._native.Tracer, Floor and enable_stats(): see _native.pyi. */
#include "py_tracer.h"

#include <errno.h>
#include <stdio.h>

#include "_native/common/cleanup.h"

static PyObject *probe_error;

void ow_py_raise_probe_error(int err, const char *what, const char *log)
{
	PyObject *args = Py_BuildValue("(iss)", -err, what, log);

	if (args) {
		PyErr_SetObject(probe_error, args);
		Py_DECREF(args);
	}
}

PyObject *ow_py_programs_list(const struct ow_program_info *info, int n)
{
	PyObject *list, *item;

	if (n < 0)
		return ow_py_raise(n, "cannot read the programs' own statistics");
	list = PyList_New(0);
	for (int i = 0; list && i < n; i++) {
		item = Py_BuildValue("(sIKKK)", info[i].name, info[i].id, info[i].runs,
				     info[i].run_ns, info[i].recursion_misses);
		if (!item || PyList_Append(list, item))
			Py_CLEAR(list);
		Py_XDECREF(item);
	}
	return list;
}

struct tracer_object {
	PyObject_HEAD struct ow_tracer *tracer;
	__u32 nr_targets;
};

/* Fill @config from the constructor's arguments. The buffers keep what it points to. */
static int parse_config(PyObject *args, PyObject *kwargs, Py_buffer *targets, Py_buffer *disks,
			struct ow_tracer_config *config)
{
	static char *names[] = {"targets", "disks",	 "stamps", "bios",
				"cpus",	   "queue_time", "raw_tp", NULL};
	int queue_time = 0, raw_tp = 0;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*y*II|I$pp", names, targets, disks,
					 &config->nr_stamps, &config->nr_bios, &config->nr_cpus,
					 &queue_time, &raw_tp))
		return -1;
	config->targets = targets->buf;
	config->nr_targets = targets->len / sizeof(struct ow_target);
	config->disks = disks->buf;
	config->nr_disks = disks->len / sizeof(struct ow_disk_key);
	config->queue_time = queue_time;
	config->raw_tp = raw_tp;
	if (config->nr_targets && config->nr_targets <= OW_MAX_TARGETS &&
	    targets->len % sizeof(struct ow_target) == 0 &&
	    disks->len % sizeof(struct ow_disk_key) == 0)
		return 0;
	PyBuffer_Release(targets);
	PyBuffer_Release(disks);
	PyErr_Format(PyExc_ValueError, "need 1 to %d whole targets and whole disk keys",
		     OW_MAX_TARGETS);
	return -1;
}

static int tracer_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
	struct tracer_object *object = (struct tracer_object *)self;
	_cleanup_free_ char *log = malloc(OW_LOG_SIZE);
	struct ow_tracer_config config = {};
	Py_buffer targets, disks;
	int err;

	if (!log) {
		PyErr_NoMemory();
		return -1;
	}
	if (parse_config(args, kwargs, &targets, &disks, &config))
		return -1;
	ow_tracer_close(object->tracer);
	object->tracer = NULL;
	Py_BEGIN_ALLOW_THREADS;
	err = ow_tracer_open(&config, &object->tracer, log);
	Py_END_ALLOW_THREADS;
	object->nr_targets = config.nr_targets;
	PyBuffer_Release(&targets);
	PyBuffer_Release(&disks);
	if (!err)
		return 0;
	ow_py_raise_probe_error(err, "cannot load or attach the block tracer", log);
	return -1;
}

static struct ow_tracer *opened(PyObject *self)
{
	struct ow_tracer *tracer = ((struct tracer_object *)self)->tracer;

	if (!tracer)
		PyErr_SetString(PyExc_ValueError, "the tracer is closed");
	return tracer;
}

static PyObject *tracer_sample(PyObject *self, PyObject *arg)
{
	unsigned long target = PyLong_AsUnsignedLong(arg);
	struct ow_tracer *tracer = opened(self);
	PyObject *bytes;

	if (PyErr_Occurred() || !tracer)
		return NULL;
	if (target >= ((struct tracer_object *)self)->nr_targets) {
		PyErr_SetString(PyExc_IndexError, "no such target");
		return NULL;
	}
	bytes = PyBytes_FromStringAndSize(NULL, sizeof(struct ow_sample));
	if (bytes)
		ow_tracer_sample(tracer, target, (struct ow_sample *)PyBytes_AS_STRING(bytes));
	return bytes;
}

static PyObject *tracer_chain(PyObject *self, PyObject *args)
{
	struct ow_tracer *tracer = opened(self);
	int issued, done, err;

	if (!tracer || !PyArg_ParseTuple(args, "ii", &issued, &done))
		return NULL;
	err = ow_tracer_chain(tracer, issued, done);
	if (!err)
		Py_RETURN_NONE;
	ow_py_raise_probe_error(err, "cannot follow discards from the block tracer", "");
	return NULL;
}

static PyObject *tracer_programs(PyObject *self, PyObject *Py_UNUSED(arg))
{
	struct ow_program_info info[OW_MAX_PROGRAMS];
	struct ow_tracer *tracer = opened(self);

	return tracer ? ow_py_programs_list(info, ow_tracer_programs(tracer, info)) : NULL;
}

static PyObject *tracer_close(PyObject *self, PyObject *Py_UNUSED(arg))
{
	struct tracer_object *object = (struct tracer_object *)self;
	struct ow_tracer *tracer = object->tracer;

	object->tracer = NULL;
	Py_BEGIN_ALLOW_THREADS;
	ow_tracer_close(tracer);
	Py_END_ALLOW_THREADS;
	Py_RETURN_NONE;
}

static PyObject *tracer_get_raw(PyObject *self, void *Py_UNUSED(closure))
{
	struct ow_tracer *tracer = opened(self);

	return tracer ? PyBool_FromLong(ow_tracer_is_raw(tracer)) : NULL;
}

static PyObject *tracer_get_lanes(PyObject *self, void *Py_UNUSED(closure))
{
	struct ow_tracer *tracer = opened(self);

	return tracer ? Py_BuildValue("(II)", ow_tracer_nr_lanes(tracer), ow_tracer_nr_cpus(tracer))
		      : NULL;
}

static void tracer_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);

	ow_tracer_close(((struct tracer_object *)self)->tracer);
	type->tp_free(self);
	Py_DECREF(type);
}

static PyMethodDef tracer_methods[] = {
	{"sample", tracer_sample, METH_O, NULL},
	{"programs", tracer_programs, METH_NOARGS, NULL},
	{"chain", tracer_chain, METH_VARARGS, NULL},
	{"close", tracer_close, METH_NOARGS, NULL},
	{},
};

static PyGetSetDef tracer_getset[] = {
	{"raw_tp", tracer_get_raw, NULL, NULL, NULL},
	{"lanes", tracer_get_lanes, NULL, NULL, NULL},
	{},
};

static PyType_Slot tracer_slots[] = {
	{Py_tp_init, tracer_init},
	{Py_tp_dealloc, tracer_dealloc},
	{Py_tp_methods, tracer_methods},
	{Py_tp_getset, tracer_getset},
	{},
};

static PyType_Spec tracer_spec = {
	.name = "opwatch._native.Tracer",
	.basicsize = sizeof(struct tracer_object),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = tracer_slots,
};

struct floor_object {
	PyObject_HEAD struct ow_floor *floor;
};

/* The number of @name among those of enum ow_floor_kind, -1 with an exception. */
static int floor_kind(const char *name)
{
	static const char *const names[] = {"empty", "clock", "sketch"};

	for (int kind = OW_FLOOR_EMPTY; kind <= OW_FLOOR_SKETCH; kind++) {
		if (!strcmp(names[kind], name))
			return kind;
	}
	PyErr_Format(PyExc_ValueError, "there is no floor \"%s\": empty, clock or sketch", name);
	return -1;
}

static int floor_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"kind", NULL};
	struct floor_object *object = (struct floor_object *)self;
	_cleanup_free_ char *log = malloc(OW_LOG_SIZE);
	const char *name = "empty";
	int err = -ENOMEM, kind;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|s", names, &name))
		return -1;
	kind = floor_kind(name);
	if (kind < 0)
		return -1;
	if (log) {
		ow_floor_close(object->floor);
		object->floor = NULL;
		err = ow_floor_open(kind, &object->floor, log);
	}
	if (err)
		ow_py_raise_probe_error(err, "cannot load or attach the programs to compare with",
					log ? log : "");
	return err ? -1 : 0;
}

static PyObject *floor_programs(PyObject *self, PyObject *Py_UNUSED(arg))
{
	struct ow_floor *floor = ((struct floor_object *)self)->floor;
	struct ow_program_info info[OW_MAX_PROGRAMS];

	if (floor)
		return ow_py_programs_list(info, ow_floor_programs(floor, info));
	PyErr_SetString(PyExc_ValueError, "the floor is closed");
	return NULL;
}

static PyObject *floor_close(PyObject *self, PyObject *Py_UNUSED(arg))
{
	struct floor_object *object = (struct floor_object *)self;

	ow_floor_close(object->floor);
	object->floor = NULL;
	Py_RETURN_NONE;
}

static void floor_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);

	ow_floor_close(((struct floor_object *)self)->floor);
	type->tp_free(self);
	Py_DECREF(type);
}

static PyMethodDef floor_methods[] = {
	{"programs", floor_programs, METH_NOARGS, NULL},
	{"close", floor_close, METH_NOARGS, NULL},
	{},
};

static PyType_Slot floor_slots[] = {
	{Py_tp_init, floor_init},
	{Py_tp_dealloc, floor_dealloc},
	{Py_tp_methods, floor_methods},
	{},
};

static PyType_Spec floor_spec = {
	.name = "opwatch._native.Floor",
	.basicsize = sizeof(struct floor_object),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = floor_slots,
};

static PyObject *enable_stats(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(arg))
{
	int fd = ow_enable_stats();

	return fd < 0 ? ow_py_raise(fd, "cannot enable BPF statistics") : PyLong_FromLong(fd);
}

/* What @config would take is asked for without the buffers that it points to. */
static int parse_shape(PyObject *args, PyObject *kwargs, struct ow_tracer_config *config)
{
	Py_buffer targets, disks;

	if (parse_config(args, kwargs, &targets, &disks, config))
		return -1;
	PyBuffer_Release(&targets);
	PyBuffer_Release(&disks);
	if (config->nr_cpus && config->nr_cpus <= OW_MOST_CPUS)
		return 0;
	PyErr_Format(PyExc_ValueError, "need 1 to %d CPUs", OW_MOST_CPUS);
	return -1;
}

static PyObject *map_bytes(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
	struct ow_tracer_config config = {};

	if (parse_shape(args, kwargs, &config))
		return NULL;
	return PyLong_FromUnsignedLongLong(ow_tracer_map_bytes(&config));
}

static PyObject *map_lanes(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
	struct ow_tracer_config config = {};

	if (parse_shape(args, kwargs, &config))
		return NULL;
	return PyLong_FromUnsignedLong(ow_tracer_lanes(&config));
}

static PyMethodDef functions[] = {
	{"enable_stats", enable_stats, METH_NOARGS, NULL},
	{"map_bytes", (PyCFunction)(void (*)(void))map_bytes, METH_VARARGS | METH_KEYWORDS, NULL},
	{"map_lanes", (PyCFunction)(void (*)(void))map_lanes, METH_VARARGS | METH_KEYWORDS, NULL},
	{},
};

int ow_py_add_type(PyObject *module, PyType_Spec *spec)
{
	PyObject *type = PyType_FromSpec(spec);
	int err = type ? PyModule_AddType(module, (PyTypeObject *)type) : -1;

	Py_XDECREF(type);
	return err;
}

int ow_py_add_tracer(PyObject *module)
{
	probe_error = PyErr_NewException("opwatch._native.ProbeError", PyExc_RuntimeError, NULL);
	if (!probe_error || PyModule_AddObjectRef(module, "ProbeError", probe_error))
		return -1;
	if (ow_py_add_type(module, &tracer_spec) || ow_py_add_type(module, &floor_spec))
		return -1;
	if (ow_py_add_discards(module) || ow_py_add_changes(module) || ow_py_add_contexts(module))
		return -1;
	return PyModule_AddFunctions(module, functions);
}
