// SPDX-License-Identifier: MIT
/* opwatch._native.Tracer, compute_map_bytes() and count_lanes(): see _native.pyi. */
#include "py_tracer.h"

#include <errno.h>
#include <stdio.h>

#include "_native/common/cleanup.h"
#include "_native/common/types.h"

struct tracer_object {
	PyObject_HEAD struct ow_tracer *tracer;
	__u32 nr_targets;
};

/* Fill @config from the constructor's arguments. @config points into the buffers. */
static int parse_config(PyObject *args, PyObject *kwargs, Py_buffer *targets, Py_buffer *disks,
			struct ow_tracer_config *config)
{
	static char *names[] = {"targets",    "disks",	  "stamps",  "bios", "cpus",
				"queue_time", "programs", "slow_ns", "by",   NULL};
	int queue_time = 0;
	unsigned int by = OW_BY_NONE;
	unsigned long long slow_ns = 0;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*y*II|I$pO&KI", names, targets, disks,
					 &config->nr_stamps, &config->nr_bios, &config->nr_cpus,
					 &queue_time, ow_py_parse_programs, &config->programs,
					 &slow_ns, &by))
		return -1;
	config->targets = targets->buf;
	config->nr_targets = targets->len / sizeof(struct ow_target);
	config->disks = disks->buf;
	config->nr_disks = disks->len / sizeof(struct ow_disk_key);
	config->queue_time = queue_time;
	config->slow_ns = slow_ns;
	config->by = by;
	if (config->nr_targets && config->nr_targets <= OW_MAX_TARGETS &&
	    targets->len % sizeof(struct ow_target) == 0 &&
	    disks->len % sizeof(struct ow_disk_key) == 0)
		return 0;
	PyBuffer_Release(targets);
	PyBuffer_Release(disks);
	PyErr_Format(PyExc_ValueError, "need 1 to %d complete targets and disk keys",
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

static struct ow_tracer *get_tracer(PyObject *self)
{
	struct ow_tracer *tracer = ((struct tracer_object *)self)->tracer;

	if (!tracer)
		PyErr_SetString(PyExc_ValueError, "the tracer is closed");
	return tracer;
}

static PyObject *tracer_sample(PyObject *self, PyObject *arg)
{
	unsigned long target = PyLong_AsUnsignedLong(arg);
	struct ow_tracer *tracer = get_tracer(self);
	PyObject *bytes;

	if (PyErr_Occurred() || !tracer)
		return NULL;
	if (target >= ((struct tracer_object *)self)->nr_targets) {
		PyErr_SetString(PyExc_IndexError, "no such target");
		return NULL;
	}
	bytes = PyBytes_FromStringAndSize(NULL, sizeof(struct ow_sample));
	if (bytes)
		ow_tracer_sample(tracer, target, (struct ow_sample *)PyBytes_AsString(bytes));
	return bytes;
}

/* The maximum number of records in the ring. */
#define MAX_SLOW (OW_SLOW_RING_BYTES / sizeof(struct ow_slow))

static PyObject *tracer_slow(PyObject *self, PyObject *Py_UNUSED(arg))
{
	struct ow_tracer *tracer = get_tracer(self);
	_cleanup_free_ struct ow_slow *slow = NULL;
	__u64 dropped[OW_MAX_TARGETS];
	int n;

	if (!tracer)
		return NULL;
	slow = malloc(MAX_SLOW * sizeof(*slow));
	if (!slow)
		return PyErr_NoMemory();
	n = ow_tracer_slow(tracer, slow, MAX_SLOW, dropped);
	if (n < 0)
		return ow_py_raise(n, "cannot read the ring of slow requests");
	return Py_BuildValue("(y#y#)", (char *)slow, (Py_ssize_t)(n * sizeof(*slow)),
			     (char *)dropped, (Py_ssize_t)sizeof(dropped));
}

static PyObject *tracer_owners(PyObject *self, PyObject *arg)
{
	unsigned long target = PyLong_AsUnsignedLong(arg);
	struct ow_tracer *tracer = get_tracer(self);
	const struct ow_owner_sample *owners;
	int n;

	if (PyErr_Occurred() || !tracer)
		return NULL;
	n = ow_tracer_owners(tracer, target, &owners);
	if (n < 0)
		return ow_py_raise(n, "cannot read the owners of requests");
	return PyBytes_FromStringAndSize((const char *)owners, n * sizeof(*owners));
}

static PyObject *tracer_evict_owners(PyObject *self, PyObject *args)
{
	struct ow_tracer *tracer = get_tracer(self);
	const struct ow_owner_sample *evicted;
	struct ow_eviction limits;
	unsigned long long idle_ns;
	int n;

	if (!tracer || !PyArg_ParseTuple(args, "IIK", &limits.keep, &limits.max, &idle_ns))
		return NULL;
	limits.idle_ns = idle_ns;
	n = ow_tracer_evict_owners(tracer, &limits, &evicted);
	if (n < 0)
		return ow_py_raise(n, "cannot evict owners");
	return PyBytes_FromStringAndSize((const char *)evicted, n * sizeof(*evicted));
}

static PyObject *tracer_chain(PyObject *self, PyObject *args)
{
	struct ow_tracer *tracer = get_tracer(self);
	int issued, done, err;

	if (!tracer || !PyArg_ParseTuple(args, "ii", &issued, &done))
		return NULL;
	err = ow_tracer_chain(tracer, issued, done);
	if (!err)
		Py_RETURN_NONE;
	ow_py_raise_probe_error(err, "cannot call the discard programs from the block tracer", "");
	return NULL;
}

static PyObject *tracer_programs(PyObject *self, PyObject *Py_UNUSED(arg))
{
	struct ow_program_info info[OW_MAX_PROGRAMS];
	struct ow_tracer *tracer = get_tracer(self);

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

static PyObject *tracer_get_lanes(PyObject *self, void *Py_UNUSED(closure))
{
	struct ow_tracer *tracer = get_tracer(self);

	return tracer ? Py_BuildValue("(II)", ow_tracer_nr_lanes(tracer), ow_tracer_nr_cpus(tracer))
		      : NULL;
}

static PyObject *tracer_get_max_owners(PyObject *self, void *Py_UNUSED(closure))
{
	struct ow_tracer *tracer = get_tracer(self);

	return tracer ? PyLong_FromUnsignedLong(ow_tracer_max_owners(tracer)) : NULL;
}

static PyObject *tracer_get_throttle_error(PyObject *self, void *Py_UNUSED(closure))
{
	struct ow_tracer *tracer = get_tracer(self);

	return tracer ? PyLong_FromLong(-ow_tracer_throttle_error(tracer)) : NULL;
}

static void tracer_dealloc(PyObject *self)
{
	ow_tracer_close(((struct tracer_object *)self)->tracer);
	ow_py_free(self);
}

static PyMethodDef tracer_methods[] = {
	{"sample", tracer_sample, METH_O, NULL},
	{"programs", tracer_programs, METH_NOARGS, NULL},
	{"slow", tracer_slow, METH_NOARGS, NULL},
	{"owners", tracer_owners, METH_O, NULL},
	{"evict_owners", tracer_evict_owners, METH_VARARGS, NULL},
	{"chain", tracer_chain, METH_VARARGS, NULL},
	{"close", tracer_close, METH_NOARGS, NULL},
	{},
};

static PyGetSetDef tracer_getset[] = {
	{"lanes", tracer_get_lanes, NULL, NULL, NULL},
	{"max_owners", tracer_get_max_owners, NULL, NULL, NULL},
	{"throttle_error", tracer_get_throttle_error, NULL, NULL, NULL},
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

/* Parse a configuration for functions that do not read the buffers. */
static int parse_shape(PyObject *args, PyObject *kwargs, struct ow_tracer_config *config)
{
	Py_buffer targets, disks;

	if (parse_config(args, kwargs, &targets, &disks, config))
		return -1;
	PyBuffer_Release(&targets);
	PyBuffer_Release(&disks);
	if (config->nr_cpus && config->nr_cpus <= OW_MAX_CPUS)
		return 0;
	PyErr_Format(PyExc_ValueError, "need 1 to %d CPUs", OW_MAX_CPUS);
	return -1;
}

static PyObject *compute_map_bytes(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
	struct ow_tracer_config config = {};

	if (parse_shape(args, kwargs, &config))
		return NULL;
	return PyLong_FromUnsignedLongLong(ow_tracer_compute_map_bytes(&config));
}

static PyObject *count_lanes(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
	struct ow_tracer_config config = {};

	if (parse_shape(args, kwargs, &config))
		return NULL;
	return PyLong_FromUnsignedLong(ow_tracer_count_lanes(&config));
}

static PyMethodDef functions[] = {
	{"compute_map_bytes", (PyCFunction)(void (*)(void))compute_map_bytes,
	 METH_VARARGS | METH_KEYWORDS, NULL},
	{"count_lanes", (PyCFunction)(void (*)(void))count_lanes, METH_VARARGS | METH_KEYWORDS,
	 NULL},
	{},
};

int ow_py_add_tracer(PyObject *module)
{
	if (ow_register_types()) {
		ow_py_raise(-EINVAL, "libbpf rejects the handlers of typed programs");
		return -1;
	}
	return ow_py_add_type(module, &tracer_spec) ?: PyModule_AddFunctions(module, functions);
}
