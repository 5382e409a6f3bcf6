/* SPDX-License-Identifier: MIT */
/* What the bindings of the tracers share. */
#ifndef OPWATCH_PY_TRACER_H
#define OPWATCH_PY_TRACER_H

#include "_native/binding/native.h"
#include "tracer.h"

/* Raise ProbeError(errno, what, log). */
void ow_py_raise_probe_error(int err, const char *what, const char *log);
/* [(name, id, runs, run_ns, recursion_misses)]; @n below 0 is an error to raise. */
PyObject *ow_py_programs_list(const struct ow_program_info *info, int n);
/* A PyArg_Parse converter, of programs as in opwatch/trace/programs.py to struct ow_wanted_list. */
int ow_py_wanted(PyObject *programs, void *ret);

#endif
