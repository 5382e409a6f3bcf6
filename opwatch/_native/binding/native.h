/* SPDX-License-Identifier: MIT */
/* Shared declarations of the opwatch._native binding files. Only binding files include Python.h. */
#ifndef OPWATCH_NATIVE_H
#define OPWATCH_NATIVE_H

/* The stable ABI, so that one build serves every Python from 3.11 on. */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Raise OSError for @err (a negative errno) with the text @what. Returns NULL. */
PyObject *ow_py_raise(int err, const char *what);

/* Each package adds its types and functions to the module. Returns 0, or -1 with an exception
 * set. */
int ow_py_add_counts(PyObject *module);
int ow_py_add_ftl(PyObject *module);
int ow_py_add_service(PyObject *module); /* call after ow_py_add_ftl(): uses the Ftl type */
int ow_py_add_host(PyObject *module);	 /* call after ow_py_add_service() */
int ow_py_add_nvme(PyObject *module);
int ow_py_add_privileges(PyObject *module);
int ow_py_add_memory(PyObject *module);
int ow_py_add_programs(PyObject *module); /* also adds ProbeError, which the tracers raise */
int ow_py_add_tracer(PyObject *module);
int ow_py_add_discards(PyObject *module);
int ow_py_add_changes(PyObject *module);
int ow_py_add_contexts(PyObject *module);
int ow_py_add_writes(PyObject *module);

int ow_py_add_type(PyObject *module, PyType_Spec *spec);

/* Free an object of such a type, at the end of its tp_dealloc. */
void ow_py_free(PyObject *object);

#endif
