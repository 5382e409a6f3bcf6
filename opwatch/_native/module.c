// SPDX-License-Identifier: MIT
/* The extension module: connects Python with the C libraries. */
#include "_native/binding/native.h"

static struct PyModuleDef native_module = {
	.m_base = PyModuleDef_HEAD_INIT,
	.m_name = "_native",
	.m_doc = "BPF tracing, flash translation and NVMe logs: see _native.pyi.",
	.m_size = -1,
};

/* In dependency order. */
static int (*const bindings[])(PyObject *module) = {
	ow_py_add_counts,   ow_py_add_ftl,	  ow_py_add_service,  ow_py_add_host,
	ow_py_add_nvme,	    ow_py_add_privileges, ow_py_add_memory,
#ifdef OPWATCH_HAVE_BPF
	ow_py_add_programs, ow_py_add_tracer,	  ow_py_add_discards, ow_py_add_changes,
	ow_py_add_contexts, ow_py_add_writes,
#endif
};

PyMODINIT_FUNC PyInit__native(void)
{
	PyObject *module = PyModule_Create(&native_module);

	for (size_t i = 0; module && i < sizeof(bindings) / sizeof(bindings[0]); i++) {
		if (bindings[i](module))
			Py_CLEAR(module);
	}
	return module;
}
