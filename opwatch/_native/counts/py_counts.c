// SPDX-License-Identifier: MIT
/* Counters as seen by Python: buffers of 64-bit words. */
#include "_native/binding/native.h"
#include "operation.h"

#include <stdint.h>
#include <string.h>

/* Get a buffer of whole words, which the caller releases. Returns 0, or -1 with an exception
 * set. */
static int get_words(PyObject *object, Py_buffer *view)
{
	if (PyObject_GetBuffer(object, view, PyBUF_SIMPLE))
		return -1;
	if (view->len % sizeof(uint64_t) == 0)
		return 0;
	PyBuffer_Release(view);
	PyErr_SetString(PyExc_ValueError, "the counters' length is not a multiple of 8 bytes");
	return -1;
}

/* The buffer may be unaligned. */
static uint64_t read_word(const Py_buffer *view, size_t index)
{
	uint64_t word;

	memcpy(&word, (const char *)view->buf + index * sizeof(word), sizeof(word));
	return word;
}

static int append_number(PyObject *list, uint64_t number)
{
	PyObject *item = PyLong_FromUnsignedLongLong(number);
	int failed = !item || PyList_Append(list, item);

	Py_XDECREF(item);
	return failed ? -1 : 0;
}

/* Returns 1 on success, 0 if a counter shrank or the total overflows, -1 with an exception set. */
static int collect_growth(const Py_buffer *now, const Py_buffer *then, PyObject *slots,
			  PyObject *running)
{
	uint64_t total = 0;

	for (size_t i = 0; i < now->len / sizeof(uint64_t); i++) {
		uint64_t new = read_word(now, i), old = read_word(then, i);

		if (new == old)
			continue;
		if (new < old || __builtin_add_overflow(total, new - old, &total))
			return 0;
		if (append_number(slots, i) || append_number(running, total))
			return -1;
	}
	return 1;
}

static PyObject *compute_growth(const Py_buffer *now, const Py_buffer *then)
{
	PyObject *slots, *running, *result = NULL;
	int done;

	if (now->len != then->len) {
		PyErr_SetString(PyExc_ValueError,
				"readings of different counters: their lengths differ");
		return NULL;
	}
	slots = PyList_New(0);
	running = PyList_New(0);
	done = slots && running ? collect_growth(now, then, slots, running) : -1;
	if (done > 0)
		result = PyTuple_Pack(2, slots, running);
	else if (!done)
		result = Py_NewRef(Py_None);
	Py_XDECREF(slots);
	Py_XDECREF(running);
	return result;
}

static PyObject *find_growth(PyObject *Py_UNUSED(module), PyObject *args)
{
	PyObject *objects[2], *result = NULL;
	/* Releasing an empty view is allowed. */
	Py_buffer now = {}, then = {};

	if (!PyArg_ParseTuple(args, "OO:find_growth", &objects[0], &objects[1]))
		return NULL;
	if (!get_words(objects[0], &now) && !get_words(objects[1], &then))
		result = compute_growth(&now, &then);
	PyBuffer_Release(&then);
	PyBuffer_Release(&now);
	return result;
}

/* Read the plain counters modulo 2^64. Returns 0, or -1 with an exception set. */
static int read_counters(PyObject *object, uint64_t *counters)
{
	if (!PyTuple_Check(object) || PyTuple_Size(object) != OW_PLAIN_COUNTERS) {
		PyErr_SetString(PyExc_ValueError, "expected a tuple of the plain counters");
		return -1;
	}
	for (int i = 0; i < OW_PLAIN_COUNTERS; i++) {
		counters[i] = PyLong_AsUnsignedLongLongMask(PyTuple_GetItem(object, i));
		if (counters[i] == (uint64_t)-1 && PyErr_Occurred())
			return -1;
	}
	return 0;
}

/* Read the histograms. The caller releases the first *nr views[]. */
static int read_slots(PyObject *object, struct ow_slots *slots, Py_buffer *views, int *nr)
{
	if (!PyTuple_Check(object) || PyTuple_Size(object) != OW_HISTOGRAMS) {
		PyErr_SetString(PyExc_ValueError, "expected a tuple of the histograms");
		return -1;
	}
	for (int i = 0; i < OW_HISTOGRAMS; i++) {
		size_t bytes = ow_count_recorded_slots(i) * sizeof(uint64_t);

		if (get_words(PyTuple_GetItem(object, i), &views[i]))
			return -1;
		++*nr;
		if ((size_t)views[i].len != bytes) {
			PyErr_Format(PyExc_ValueError, "histogram %d has %zu bytes, not %zd", i,
				     bytes, views[i].len);
			return -1;
		}
		slots[i] = (struct ow_slots){views[i].buf, ow_count_recorded_slots(i)};
	}
	return 0;
}

/* Read an operation; None stands for zeros. */
static int read_operation(PyObject *counters, PyObject *slots, struct ow_operation *ret,
			  Py_buffer *views, int *nr)
{
	*ret = (struct ow_operation){};
	if (counters == Py_None && slots == Py_None)
		return 0;
	if (read_counters(counters, ret->counters))
		return -1;
	return read_slots(slots, ret->slots, views, nr);
}

static PyObject *encode_change(PyObject *Py_UNUSED(module), PyObject *args)
{
	PyObject *objects[4], *result = NULL;
	Py_buffer before[OW_HISTOGRAMS], after[OW_HISTOGRAMS];
	struct ow_operation_change change;
	struct ow_operation then, now;
	int nr_before = 0, nr_after = 0;

	if (!PyArg_ParseTuple(args, "OOOO:encode_change", &objects[0], &objects[1], &objects[2],
			      &objects[3]))
		return NULL;
	if (!read_operation(objects[0], objects[1], &then, before, &nr_before) &&
	    !read_operation(objects[2], objects[3], &now, after, &nr_after)) {
		ow_encode_change(&change, &then, &now);
		result = Py_BuildValue("y#y#y#", change.counters.at,
				       (Py_ssize_t)change.counters.length, change.slots.at,
				       (Py_ssize_t)change.slots.length, change.counts.at,
				       (Py_ssize_t)change.counts.length);
	}
	while (nr_before)
		PyBuffer_Release(&before[--nr_before]);
	while (nr_after)
		PyBuffer_Release(&after[--nr_after]);
	return result;
}

static PyMethodDef functions[] = {
	{"encode_change", encode_change, METH_VARARGS,
	 "Encode the change of an operation's counters as in a recording: see _native.pyi."},
	{"find_growth", find_growth, METH_VARARGS,
	 "Return the counters that grew between two readings: see _native.pyi."},
	{NULL, NULL, 0, NULL},
};

int ow_py_add_counts(PyObject *module)
{
	return PyModule_AddFunctions(module, functions);
}
