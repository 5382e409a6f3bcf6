// SPDX-License-Identifier: MIT
/* Helpers for all bindings: raise errors, add types and free their objects. */
#include "native.h"

#include <errno.h>

PyObject *ow_py_raise(int err, const char *what)
{
	PyObject *args;

	if (err == -ENOMEM)
		return PyErr_NoMemory();
	args = Py_BuildValue("(is)", -err, what);
	if (args) {
		PyErr_SetObject(PyExc_OSError, args);
		Py_DECREF(args);
	}
	return NULL;
}

int ow_py_add_type(PyObject *module, PyType_Spec *spec)
{
	PyObject *type = PyType_FromSpec(spec);
	int err = type ? PyModule_AddType(module, (PyTypeObject *)type) : -1;

	Py_XDECREF(type);
	return err;
}

void ow_py_free(PyObject *object)
{
	PyTypeObject *type = Py_TYPE(object);

	((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
	Py_DECREF(type);
}
