// SPDX-License-Identifier: MIT
/* Counters as seen by Python: buffers of 64-bit words. */
#include "_native/binding/native.h"
#include "operation.h"

#include <stdint.h>
#include <string.h>

/* Get a buffer of whole words, which the caller releases. Returns 0, or -1 with an exception
 * set. */
static int words_of(PyObject *object, Py_buffer *view)
{
	if (PyObject_GetBuffer(object, view, PyBUF_SIMPLE))
		return -1;
	if (view->len % sizeof(uint64_t) == 0)
		return 0;
	PyBuffer_Release(view);
	PyErr_SetString(PyExc_ValueError, "counters are whole words of 64 bits");
	return -1;
}

/* The buffer may be unaligned. */
static uint64_t word_of(const Py_buffer *view, size_t index)
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
static int tell_grown(const Py_buffer *now, const Py_buffer *then, PyObject *slots,
		      PyObject *running)
{
	uint64_t total = 0;

	for (size_t i = 0; i < now->len / sizeof(uint64_t); i++) {
		uint64_t new = word_of(now, i), old = word_of(then, i);

		if (new == old)
			continue;
		if (new < old || __builtin_add_overflow(total, new - old, &total))
			return 0;
		if (append_number(slots, i) || append_number(running, total))
			return -1;
	}
	return 1;
}

static PyObject *grown_between(const Py_buffer *now, const Py_buffer *then)
{
	PyObject *slots, *running, *answer = NULL;
	int done;

	if (now->len != then->len) {
		PyErr_SetString(PyExc_ValueError,
				"two readings of the same counters are as long as each other");
		return NULL;
	}
	slots = PyList_New(0);
	running = PyList_New(0);
	done = slots && running ? tell_grown(now, then, slots, running) : -1;
	if (done > 0)
		answer = PyTuple_Pack(2, slots, running);
	else if (!done)
		answer = Py_NewRef(Py_None);
	Py_XDECREF(slots);
	Py_XDECREF(running);
	return answer;
}

static PyObject *grown(PyObject *Py_UNUSED(module), PyObject *args)
{
	PyObject *objects[2], *answer = NULL;
	/* Releasing an empty view is allowed. */
	Py_buffer now = {}, then = {};

	if (!PyArg_ParseTuple(args, "OO:grown", &objects[0], &objects[1]))
		return NULL;
	if (!words_of(objects[0], &now) && !words_of(objects[1], &then))
		answer = grown_between(&now, &then);
	PyBuffer_Release(&then);
	PyBuffer_Release(&now);
	return answer;
}

/* Read the plain counters modulo 2^64. Returns 0, or -1 with an exception set. */
static int take_counters(PyObject *object, uint64_t *counters)
{
	if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != OW_PLAIN_COUNTERS) {
		PyErr_SetString(PyExc_ValueError, "a tuple of the plain counters is wanted");
		return -1;
	}
	for (int i = 0; i < OW_PLAIN_COUNTERS; i++) {
		counters[i] = PyLong_AsUnsignedLongLongMask(PyTuple_GET_ITEM(object, i));
		if (counters[i] == (uint64_t)-1 && PyErr_Occurred())
			return -1;
	}
	return 0;
}

/* Read the histograms. The caller releases the first *nr views[]. */
static int take_slots(PyObject *object, struct ow_slots *slots, Py_buffer *views, int *nr)
{
	if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != OW_HISTOGRAMS) {
		PyErr_SetString(PyExc_ValueError, "a tuple of the histograms is wanted");
		return -1;
	}
	for (int i = 0; i < OW_HISTOGRAMS; i++) {
		size_t bytes = ow_recorded_slots(i) * sizeof(uint64_t);

		if (words_of(PyTuple_GET_ITEM(object, i), &views[i]))
			return -1;
		++*nr;
		if ((size_t)views[i].len != bytes) {
			PyErr_Format(PyExc_ValueError, "histogram %d has %zu bytes, not %zd", i,
				     bytes, views[i].len);
			return -1;
		}
		slots[i] = (struct ow_slots){views[i].buf, ow_recorded_slots(i)};
	}
	return 0;
}

/* Read an operation; None stands for zeros. */
static int take_operation(PyObject *counters, PyObject *slots, struct ow_operation *ret,
			  Py_buffer *views, int *nr)
{
	*ret = (struct ow_operation){};
	if (counters == Py_None && slots == Py_None)
		return 0;
	if (take_counters(counters, ret->counters))
		return -1;
	return take_slots(slots, ret->slots, views, nr);
}

static PyObject *operation_change(PyObject *Py_UNUSED(module), PyObject *args)
{
	PyObject *objects[4], *answer = NULL;
	Py_buffer before[OW_HISTOGRAMS], after[OW_HISTOGRAMS];
	struct ow_operation_change change;
	struct ow_operation then, now;
	int nr_before = 0, nr_after = 0;

	if (!PyArg_ParseTuple(args, "OOOO:operation_change", &objects[0], &objects[1], &objects[2],
			      &objects[3]))
		return NULL;
	if (!take_operation(objects[0], objects[1], &then, before, &nr_before) &&
	    !take_operation(objects[2], objects[3], &now, after, &nr_after)) {
		ow_write_change(&change, &then, &now);
		answer = Py_BuildValue("y#y#y#", change.counters.at,
				       (Py_ssize_t)change.counters.length, change.slots.at,
				       (Py_ssize_t)change.slots.length, change.counts.at,
				       (Py_ssize_t)change.counts.length);
	}
	while (nr_before)
		PyBuffer_Release(&before[--nr_before]);
	while (nr_after)
		PyBuffer_Release(&after[--nr_after]);
	return answer;
}

static PyMethodDef functions[] = {
	{"operation_change", operation_change, METH_VARARGS,
	 "operation_change(then_counters, then_slots, counters, slots): how an operation has "
	 "changed, as "
	 "a recording has it; None and None stand for zeros."},
	{"grown", grown, METH_VARARGS,
	 "grown(now, then): the words that are larger now, and the running totals up to each; None "
	 "where one is "
	 "smaller."},
	{NULL, NULL, 0, NULL},
};

int ow_py_add_counts(PyObject *module)
{
	return PyModule_AddFunctions(module, functions);
}
