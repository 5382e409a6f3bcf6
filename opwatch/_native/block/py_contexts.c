// SPDX-License-Identifier: MIT
/* opwatch._native.Contexts: see _native.pyi. */
#include "_native/common/cleanup.h"
#include "_native/binding/native.h"
#include "py_tracer.h"

#include <errno.h>

#include "contexts.h"

struct contexts_object {
	PyObject_HEAD struct ow_contexts *contexts;
};

static int contexts_init(PyObject *self, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
	struct contexts_object *object = (struct contexts_object *)self;
	_cleanup_free_ char *log = malloc(OW_LOG_SIZE);
	int err = -ENOMEM;

	if (log) {
		ow_contexts_close(object->contexts);
		object->contexts = NULL;
		err = ow_contexts_open(&object->contexts, log);
	}
	if (err)
		ow_py_raise_probe_error(err, "cannot load or attach the context probe",
					log ? log : "");
	return err ? -1 : 0;
}

static PyObject *contexts_switches(PyObject *self, PyObject *Py_UNUSED(arg))
{
	struct ow_contexts *contexts = ((struct contexts_object *)self)->contexts;

	if (contexts)
		return PyLong_FromUnsignedLongLong(ow_contexts_read_switches(contexts));
	PyErr_SetString(PyExc_ValueError, "the probe is closed");
	return NULL;
}

static PyObject *contexts_close(PyObject *self, PyObject *Py_UNUSED(arg))
{
	struct contexts_object *object = (struct contexts_object *)self;

	ow_contexts_close(object->contexts);
	object->contexts = NULL;
	Py_RETURN_NONE;
}

static void contexts_dealloc(PyObject *self)
{
	ow_contexts_close(((struct contexts_object *)self)->contexts);
	ow_py_free(self);
}

static PyMethodDef contexts_methods[] = {
	{"switches", contexts_switches, METH_NOARGS, NULL},
	{"close", contexts_close, METH_NOARGS, NULL},
	{},
};

static PyType_Slot contexts_slots[] = {
	{Py_tp_init, contexts_init},
	{Py_tp_dealloc, contexts_dealloc},
	{Py_tp_methods, contexts_methods},
	{},
};

static PyType_Spec contexts_spec = {
	.name = "opwatch._native.Contexts",
	.basicsize = sizeof(struct contexts_object),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = contexts_slots,
};

int ow_py_add_contexts(PyObject *module)
{
	return ow_py_add_type(module, &contexts_spec);
}
