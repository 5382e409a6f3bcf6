/* SPDX-License-Identifier: MIT */
/* Declarations shared by the tracers' bindings. */
#ifndef OPWATCH_PY_TRACER_H
#define OPWATCH_PY_TRACER_H

#include "_native/binding/native.h"
#include "tracer.h"

/* Raise ProbeError(errno, what, log). */
void ow_py_raise_probe_error(int err, const char *what, const char *log);
/* Return [(name, id, runs, run_ns, recursion_misses)]. A negative @n is raised as an error. */
PyObject *ow_py_programs_list(const struct ow_program_info *info, int n);
/* PyArg_Parse converter from programs (see opwatch/trace/programs.py) to struct ow_program_list. */
int ow_py_parse_programs(PyObject *programs, void *ret);

#endif
