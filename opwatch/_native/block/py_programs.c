// SPDX-License-Identifier: MIT
/* Code shared by the tracers' bindings, and opwatch._native.Floor and enable_stats(): see
 * _native.pyi. */
#include "py_tracer.h"

#include <errno.h>
#include <string.h>

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

static int parse_program(PyObject *program, struct ow_program_spec *ret)
{
	const char *name, *needs;
	int attachment;

	if (!PyTuple_Check(program)) {
		PyErr_SetString(PyExc_TypeError, "a program is (name, needs, attachment)");
		return -1;
	}
	if (!PyArg_ParseTuple(program, "ssi", &name, &needs, &attachment))
		return -1;
	if (strlen(name) >= sizeof(ret->name) || strlen(needs) >= sizeof(ret->needs) ||
	    attachment < OW_ATTACHMENT_OPTIONAL || attachment > OW_ATTACHMENT_CALLED) {
		PyErr_Format(PyExc_ValueError, "invalid program: %R", program);
		return -1;
	}
	*ret = (struct ow_program_spec){.attachment = attachment};
	memcpy(ret->name, name, strlen(name));
	memcpy(ret->needs, needs, strlen(needs));
	return 0;
}

int ow_py_parse_programs(PyObject *programs, void *ret)
{
	PyObject *tuple = PySequence_Tuple(programs);
	struct ow_program_list *list = ret;
	Py_ssize_t nr = tuple ? PyTuple_Size(tuple) : -1;
	int err = nr < 0;

	if (nr > OW_MAX_PROGRAMS) {
		PyErr_Format(PyExc_ValueError, "%zd programs are more than %d", nr,
			     OW_MAX_PROGRAMS);
		err = -1;
	}
	for (Py_ssize_t i = 0; !err && i < nr; i++)
		err = parse_program(PyTuple_GetItem(tuple, i), &list->programs[i]);
	list->nr = err ? 0 : nr;
	Py_XDECREF(tuple);
	return !err;
}

struct floor_object {
	PyObject_HEAD struct ow_floor *floor;
};

static int floor_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"programs", NULL};
	struct floor_object *object = (struct floor_object *)self;
	_cleanup_free_ char *log = malloc(OW_LOG_SIZE);
	struct ow_program_list list = {};
	int err = -ENOMEM;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&", names, ow_py_parse_programs, &list))
		return -1;
	if (log) {
		ow_floor_close(object->floor);
		object->floor = NULL;
		err = ow_floor_open(&list, &object->floor, log);
	}
	if (err)
		ow_py_raise_probe_error(err, "cannot load or attach the floor programs",
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
	ow_floor_close(((struct floor_object *)self)->floor);
	ow_py_free(self);
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

static PyMethodDef functions[] = {
	{"enable_stats", enable_stats, METH_NOARGS, NULL},
	{},
};

int ow_py_add_programs(PyObject *module)
{
	probe_error = PyErr_NewException("opwatch._native.ProbeError", PyExc_RuntimeError, NULL);
	if (!probe_error || PyModule_AddObjectRef(module, "ProbeError", probe_error))
		return -1;
	if (ow_py_add_type(module, &floor_spec))
		return -1;
	return PyModule_AddFunctions(module, functions);
}
