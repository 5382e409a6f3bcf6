// SPDX-License-Identifier: MIT
/* release_memory(): see _native.pyi. */
#include "_native/binding/native.h"

#include "memory.h"

static PyObject *release_memory(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(args))
{
	ow_release_memory();
	Py_RETURN_NONE;
}

static PyMethodDef memory_methods[] = {
	{"release_memory", release_memory, METH_NOARGS, NULL},
	{NULL, NULL, 0, NULL},
};

int ow_py_add_memory(PyObject *module)
{
	return PyModule_AddFunctions(module, memory_methods);
}
