// SPDX-License-Identifier: MIT
/* limit_capabilities(): see _native.pyi. */
#include "_native/binding/native.h"

#include "privileges.h"

static PyObject *limit_capabilities(PyObject *Py_UNUSED(self), PyObject *args)
{
	unsigned long long keep;
	int ret;

	if (!PyArg_ParseTuple(args, "K", &keep))
		return NULL;
	ret = ow_limit_capabilities(keep);
	if (ret)
		return ow_py_raise(ret, "capset");
	Py_RETURN_NONE;
}

static PyMethodDef privilege_methods[] = {
	{"limit_capabilities", limit_capabilities, METH_VARARGS, NULL},
	{NULL, NULL, 0, NULL},
};

int ow_py_add_privileges(PyObject *module)
{
	return PyModule_AddFunctions(module, privilege_methods);
}
