// SPDX-License-Identifier: MIT
/* The extension module: glue between Python and the C libraries beside it. */
#include "_native/common/native.h"

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

static struct PyModuleDef native_module = {
	.m_base = PyModuleDef_HEAD_INIT,
	.m_name = "_native",
	.m_doc = "BPF tracing, flash translation and NVMe logs: see _native.pyi.",
	.m_size = -1,
};

PyMODINIT_FUNC PyInit__native(void)
{
	PyObject *module = PyModule_Create(&native_module);

	if (!module)
		return NULL;
	if (ow_py_add_ftl(module) || ow_py_add_nvme(module)) {
		Py_DECREF(module);
		return NULL;
	}
#ifdef OPWATCH_HAVE_BPF
	if (ow_py_add_tracer(module)) {
		Py_DECREF(module);
		return NULL;
	}
#endif
	return module;
}
