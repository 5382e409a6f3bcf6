/* SPDX-License-Identifier: MIT */
/* The binding files of opwatch._native. Only they include Python.h. */
#ifndef OPWATCH_NATIVE_H
#define OPWATCH_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Raise OSError for @err (a negative errno) with @what as its text. Returns NULL. */
PyObject *ow_py_raise(int err, const char *what);

/* Each room adds its types and functions to the module. Returns 0 or -1 with an exception set. */
int ow_py_add_counts(PyObject *module);
int ow_py_add_ftl(PyObject *module);
int ow_py_add_service(PyObject *module); /* after the FTL's, whose type it takes */
int ow_py_add_nvme(PyObject *module);
int ow_py_add_privileges(PyObject *module);
int ow_py_add_programs(PyObject *module); /* the error that the tracers raise, too */
int ow_py_add_tracer(PyObject *module);
int ow_py_add_discards(PyObject *module);
int ow_py_add_changes(PyObject *module);
int ow_py_add_contexts(PyObject *module);

int ow_py_add_type(PyObject *module, PyType_Spec *spec);

#endif
