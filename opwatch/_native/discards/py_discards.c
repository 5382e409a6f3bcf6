// SPDX-License-Identifier: MIT
/* opwatch._native.Discards: see _native.pyi. */
#include "_native/block/py_tracer.h"

#include <errno.h>

#include "_native/common/cleanup.h"
#include "_native/common/types.h"
#include "discards.h"

struct discards_object {
	PyObject_HEAD struct ow_discards *discards;
};

static int parse_config(PyObject *args, PyObject *kwargs, struct ow_discards_config *config)
{
	static char *names[] = {"pidns_dev", "pidns_ino", "programs", "stalls", NULL};
	int measures_stalls = 0;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KKO&|$p", names, &config->pidns_dev,
					 &config->pidns_ino, ow_py_parse_programs,
					 &config->programs, &measures_stalls))
		return -1;
	config->measures_stalls = measures_stalls;
	return 0;
}

static int discards_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
	struct discards_object *object = (struct discards_object *)self;
	_cleanup_free_ char *log = malloc(OW_LOG_SIZE);
	struct ow_discards_config config = {};
	int err;

	if (!log) {
		PyErr_NoMemory();
		return -1;
	}
	if (parse_config(args, kwargs, &config))
		return -1;
	ow_discards_close(object->discards);
	object->discards = NULL;
	Py_BEGIN_ALLOW_THREADS;
	err = ow_discards_open(&config, &object->discards, log);
	Py_END_ALLOW_THREADS;
	if (!err)
		return 0;
	ow_py_raise_probe_error(err, "cannot load the discard tracer", log);
	return -1;
}

static struct ow_discards *get_discards(PyObject *self)
{
	struct ow_discards *discards = ((struct discards_object *)self)->discards;

	if (!discards)
		PyErr_SetString(PyExc_ValueError, "the discard tracer is closed");
	return discards;
}

static PyObject *discards_attach(PyObject *self, PyObject *arg)
{
	_cleanup_free_ char *log = malloc(OW_LOG_SIZE);
	struct ow_discards *discards = get_discards(self);
	Py_buffer granules;
	int err;

	if (!discards)
		return NULL;
	if (!log)
		return PyErr_NoMemory();
	if (PyObject_GetBuffer(arg, &granules, PyBUF_SIMPLE))
		return NULL;
	if (granules.len % sizeof(struct ow_granule)) {
		PyBuffer_Release(&granules);
		PyErr_SetString(PyExc_ValueError,
				"the granules' length is not a multiple of their size");
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	err = ow_discards_attach(discards, granules.buf, granules.len / sizeof(struct ow_granule),
				 log);
	Py_END_ALLOW_THREADS;
	PyBuffer_Release(&granules);
	if (err) {
		ow_py_raise_probe_error(err, "cannot attach the discard tracer", log);
		return NULL;
	}
	Py_RETURN_NONE;
}

static PyObject *discards_get_chained(PyObject *self, PyObject *Py_UNUSED(arg))
{
	struct ow_discards *discards = get_discards(self);
	int issued, done;

	if (!discards)
		return NULL;
	ow_discards_get_chained(discards, &issued, &done);
	return Py_BuildValue("(ii)", issued, done);
}

static PyObject *discards_follow(PyObject *self, PyObject *arg)
{
	unsigned long tgid = PyLong_AsUnsignedLong(arg);
	struct ow_discards *discards = get_discards(self);

	if (PyErr_Occurred() || !discards)
		return NULL;
	ow_discards_set_followed(discards, tgid);
	Py_RETURN_NONE;
}

static PyObject *read_pairs(PyObject *self,
			    int (*read)(const struct ow_discards *, void **, size_t *))
{
	struct ow_discards *discards = get_discards(self);
	_cleanup_free_ void *pairs = NULL;
	size_t pair_bytes = 0;
	int n;

	if (!discards)
		return NULL;
	n = read(discards, &pairs, &pair_bytes);
	if (n < 0)
		return ow_py_raise(n, "cannot read the discard tracer's counters");
	return PyBytes_FromStringAndSize(pairs, n * pair_bytes);
}

static PyObject *discards_flows(PyObject *self, PyObject *Py_UNUSED(arg))
{
	return read_pairs(self, ow_discards_flows);
}

static PyObject *discards_origins(PyObject *self, PyObject *Py_UNUSED(arg))
{
	return read_pairs(self, ow_discards_origins);
}

static PyObject *discards_loss(PyObject *self, PyObject *Py_UNUSED(arg))
{
	struct ow_discards *discards = get_discards(self);
	struct ow_discard_loss loss;

	if (!discards)
		return NULL;
	loss = ow_discards_loss(discards);
	return Py_BuildValue("(KKKKK)", loss.flows_full, loss.origins_full, loss.bios_full,
			     loss.ranges_over, loss.unmatched);
}

static PyObject *discards_attached(PyObject *self, PyObject *Py_UNUSED(arg))
{
	struct ow_discard_program programs[OW_MAX_PROGRAMS];
	struct ow_discards *discards = get_discards(self);
	PyObject *list, *item;
	int n;

	if (!discards)
		return NULL;
	n = ow_discards_programs(discards, programs);
	list = PyList_New(0);
	for (int i = 0; list && i < n; i++) {
		item = Py_BuildValue("(si)", programs[i].name, -programs[i].error);
		if (!item || PyList_Append(list, item))
			Py_CLEAR(list);
		Py_XDECREF(item);
	}
	return list;
}

static PyObject *discards_programs(PyObject *self, PyObject *Py_UNUSED(arg))
{
	struct ow_program_info info[OW_MAX_PROGRAMS];
	struct ow_discards *discards = get_discards(self);

	return discards ? ow_py_programs_list(info, ow_discards_statistics(discards, info)) : NULL;
}

static PyObject *discards_close(PyObject *self, PyObject *Py_UNUSED(arg))
{
	struct discards_object *object = (struct discards_object *)self;
	struct ow_discards *discards = object->discards;

	object->discards = NULL;
	Py_BEGIN_ALLOW_THREADS;
	ow_discards_close(discards);
	Py_END_ALLOW_THREADS;
	Py_RETURN_NONE;
}

static void discards_dealloc(PyObject *self)
{
	ow_discards_close(((struct discards_object *)self)->discards);
	ow_py_free(self);
}

static PyMethodDef discards_methods[] = {
	{"attach", discards_attach, METH_O, NULL},
	{"get_chained", discards_get_chained, METH_NOARGS, NULL},
	{"follow", discards_follow, METH_O, NULL},
	{"flows", discards_flows, METH_NOARGS, NULL},
	{"origins", discards_origins, METH_NOARGS, NULL},
	{"loss", discards_loss, METH_NOARGS, NULL},
	{"attached", discards_attached, METH_NOARGS, NULL},
	{"programs", discards_programs, METH_NOARGS, NULL},
	{"close", discards_close, METH_NOARGS, NULL},
	{},
};

static PyType_Slot discards_slots[] = {
	{Py_tp_init, discards_init},
	{Py_tp_dealloc, discards_dealloc},
	{Py_tp_methods, discards_methods},
	{},
};

static PyType_Spec discards_spec = {
	.name = "opwatch._native.Discards",
	.basicsize = sizeof(struct discards_object),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = discards_slots,
};

static PyObject *can_attach_to_functions(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(arg))
{
	return PyBool_FromLong(ow_can_attach_to_functions());
}

/* Read the types in advance. Ignore errors here, because later users of the types report them. */
static PyObject *read_types(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(arg))
{
	const struct ow_types *types;

	Py_BEGIN_ALLOW_THREADS;
	ow_get_kernel_types(&types);
	Py_END_ALLOW_THREADS;
	Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
	{"can_attach_to_functions", can_attach_to_functions, METH_NOARGS, NULL},
	{"read_types", read_types, METH_NOARGS, NULL},
	{},
};

int ow_py_add_discards(PyObject *module)
{
	return ow_py_add_type(module, &discards_spec) ?: PyModule_AddFunctions(module, functions);
}
