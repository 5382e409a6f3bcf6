// SPDX-License-Identifier: MIT
/* opwatch._native.Writes: see _native.pyi. */
#include "_native/block/py_tracer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "_native/common/cleanup.h"
#include "writes.h"

struct writes_object {
	PyObject_HEAD struct ow_writes *writes;
	__u32 nr_targets;
};

/* Copy an array of entries of @size bytes. Returns their number, or -1 with an exception. */
static int copy_entries(const Py_buffer *from, void *to, size_t size, int max, const char *what)
{
	int n = from->len / size;

	if (from->len % size || n > max) {
		PyErr_Format(PyExc_ValueError, "%s: %zd bytes are not up to %d entries of %zu",
			     what, from->len, max, size);
		return -1;
	}
	memcpy(to, from->buf, from->len);
	return n;
}

static int set_arrays(struct ow_writes_config *config, const Py_buffer *targets,
		      const Py_buffer *functions)
{
	int nr_targets = copy_entries(targets, config->targets, sizeof(config->targets[0]),
				      OW_MAX_WRITE_TARGETS, "targets");
	int nr_functions;

	if (nr_targets < 0)
		return -1;
	nr_functions = copy_entries(functions, config->functions, sizeof(config->functions[0]),
				    OW_MAX_END_FUNCTIONS, "end functions");
	config->nr_targets = nr_targets;
	config->nr_functions = nr_functions < 0 ? 0 : nr_functions;
	return nr_functions < 0 ? -1 : 0;
}

static int set_buffered_function(struct ow_writes_config *config, const char *name)
{
	if (strlen(name) < sizeof(config->buffered_function)) {
		strcpy(config->buffered_function, name);
		return 0;
	}
	PyErr_SetString(PyExc_ValueError, "the name of the function is too long");
	return -1;
}

static int parse_config(PyObject *args, PyObject *kwargs, struct ow_writes_config *config)
{
	static char *names[] = {"targets",     "functions", "programs",	 "groups",
				"super_block", "buffered",  "processes", NULL};
	const char *buffered = "";
	Py_buffer targets, functions;
	int groups = 0, processes = 0, err;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*y*O&|$pIsp", names, &targets, &functions,
					 ow_py_parse_programs, &config->programs, &groups,
					 &config->super_block, &buffered, &processes))
		return -1;
	config->counts_groups = groups;
	config->counts_processes = processes;
	err = set_arrays(config, &targets, &functions);
	if (!err)
		err = set_buffered_function(config, buffered);
	PyBuffer_Release(&targets);
	PyBuffer_Release(&functions);
	return err;
}

static int open_writes(struct writes_object *object, const struct ow_writes_config *config)
{
	_cleanup_free_ char *log = malloc(OW_LOG_SIZE);
	int err;

	if (!log) {
		PyErr_NoMemory();
		return -1;
	}
	Py_BEGIN_ALLOW_THREADS;
	ow_writes_close(object->writes);
	object->writes = NULL;
	err = ow_writes_open(config, &object->writes, log);
	Py_END_ALLOW_THREADS;
	object->nr_targets = config->nr_targets;
	if (!err)
		return 0;
	ow_py_raise_probe_error(err, "cannot load or attach the tracer of writes", log);
	return -1;
}

static int writes_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
	_cleanup_free_ struct ow_writes_config *config = calloc(1, sizeof(*config));

	if (!config) {
		PyErr_NoMemory();
		return -1;
	}
	if (parse_config(args, kwargs, config))
		return -1;
	return open_writes((struct writes_object *)self, config);
}

static struct ow_writes *get_writes(PyObject *self)
{
	struct ow_writes *writes = ((struct writes_object *)self)->writes;

	if (!writes)
		PyErr_SetString(PyExc_ValueError, "the tracer of writes is closed");
	return writes;
}

static PyObject *writes_counts(PyObject *self, PyObject *Py_UNUSED(arg))
{
	struct ow_writes *writes = get_writes(self);
	Py_ssize_t size =
		((struct writes_object *)self)->nr_targets * sizeof(struct ow_target_writes);

	return writes ? PyBytes_FromStringAndSize((const char *)ow_writes_counts(writes), size)
		      : NULL;
}

static PyObject *writes_application(PyObject *self, PyObject *Py_UNUSED(arg))
{
	struct ow_writes *writes = get_writes(self);

	return writes ? PyBytes_FromStringAndSize((const char *)ow_writes_application(writes),
						  sizeof(struct ow_application_writes))
		      : NULL;
}

static PyObject *read_pairs(PyObject *self,
			    int (*read)(const struct ow_writes *, void **, size_t *))
{
	struct ow_writes *writes = get_writes(self);
	_cleanup_free_ void *pairs = NULL;
	size_t pair_bytes = 0;
	int n;

	if (!writes)
		return NULL;
	n = read(writes, &pairs, &pair_bytes);
	if (n < 0)
		return ow_py_raise(n, "cannot read the counters of control groups or processes");
	return PyBytes_FromStringAndSize(pairs, n * pair_bytes);
}

static PyObject *writes_groups(PyObject *self, PyObject *Py_UNUSED(arg))
{
	return read_pairs(self, ow_writes_groups);
}

static PyObject *writes_processes(PyObject *self, PyObject *Py_UNUSED(arg))
{
	return read_pairs(self, ow_writes_processes);
}

static PyObject *writes_attached(PyObject *self, PyObject *Py_UNUSED(arg))
{
	struct ow_writes *writes = get_writes(self);
	PyObject *list = writes ? PyList_New(0) : NULL, *item;
	const char *name;
	int error;

	for (int i = 0; list && (name = ow_writes_attached(writes, i, &error)); i++) {
		item = Py_BuildValue("(si)", name, error);
		if (!item || PyList_Append(list, item))
			Py_CLEAR(list);
		Py_XDECREF(item);
	}
	return list;
}

static PyObject *writes_programs(PyObject *self, PyObject *Py_UNUSED(arg))
{
	struct ow_program_info info[OW_MAX_PROGRAMS];
	struct ow_writes *writes = get_writes(self);

	return writes ? ow_py_programs_list(info, ow_writes_programs(writes, info)) : NULL;
}

static PyObject *writes_close(PyObject *self, PyObject *Py_UNUSED(arg))
{
	struct writes_object *object = (struct writes_object *)self;
	struct ow_writes *writes = object->writes;

	object->writes = NULL;
	Py_BEGIN_ALLOW_THREADS;
	ow_writes_close(writes);
	Py_END_ALLOW_THREADS;
	Py_RETURN_NONE;
}

static void writes_dealloc(PyObject *self)
{
	ow_writes_close(((struct writes_object *)self)->writes);
	ow_py_free(self);
}

static PyMethodDef writes_methods[] = {
	{"counts", writes_counts, METH_NOARGS, NULL},
	{"application", writes_application, METH_NOARGS, NULL},
	{"groups", writes_groups, METH_NOARGS, NULL},
	{"processes", writes_processes, METH_NOARGS, NULL},
	{"attached", writes_attached, METH_NOARGS, NULL},
	{"programs", writes_programs, METH_NOARGS, NULL},
	{"close", writes_close, METH_NOARGS, NULL},
	{},
};

static PyType_Slot writes_slots[] = {
	{Py_tp_init, writes_init},
	{Py_tp_dealloc, writes_dealloc},
	{Py_tp_methods, writes_methods},
	{},
};

static PyType_Spec writes_spec = {
	.name = "opwatch._native.Writes",
	.basicsize = sizeof(struct writes_object),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = writes_slots,
};

int ow_py_add_writes(PyObject *module)
{
	return ow_py_add_type(module, &writes_spec);
}
