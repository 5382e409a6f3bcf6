// SPDX-License-Identifier: MIT
/* Counters as Python has them: views of 64-bit words. */
#include "_native/binding/native.h"

#include <stdint.h>
#include <string.h>

/* A view of whole words, which is released by the caller. Returns 0 or -1 with an exception set. */
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

/* A view may begin anywhere. */
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

/* Returns 1 when all is done, 0 when a counter shrank or the total has no room, -1 with an
 * exception set. */
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

static PyObject *grown(PyObject *Py_UNUSED(module), PyObject *args)
{
	PyObject *objects[2], *slots = NULL, *running = NULL, *answer = NULL;
	Py_buffer now, then;
	int done;

	if (!PyArg_ParseTuple(args, "OO:grown", &objects[0], &objects[1]) ||
	    words_of(objects[0], &now))
		return NULL;
	if (words_of(objects[1], &then))
		goto release_now;
	if (now.len != then.len) {
		PyErr_SetString(PyExc_ValueError,
				"two readings of the same counters are as long as each other");
		goto release;
	}
	slots = PyList_New(0);
	running = PyList_New(0);
	done = slots && running ? tell_grown(&now, &then, slots, running) : -1;
	if (done > 0)
		answer = PyTuple_Pack(2, slots, running);
	else if (!done)
		answer = Py_NewRef(Py_None);
release:
	Py_XDECREF(slots);
	Py_XDECREF(running);
	PyBuffer_Release(&then);
release_now:
	PyBuffer_Release(&now);
	return answer;
}

static PyMethodDef functions[] = {
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
