// SPDX-License-Identifier: MIT
/* opwatch._native.Changes: see _native.pyi. */
#include "_native/block/py_tracer.h"

#include <errno.h>
#include <string.h>

#include "_native/common/cleanup.h"
#include "history.h"

/* Maximum number of records per drain: 2 MiB. */
#define MAX_CHANGES 65536

struct changes_object {
	PyObject_HEAD struct ow_history *history;
};

static int parse_config(PyObject *args, PyObject *kwargs, struct ow_history_config *config)
{
	static char *names[] = {"disk", "ring_bytes", "programs", "scsi", NULL};
	int scsi = 0;
	const char *disk;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sIO&|$p", names, &disk, &config->ring_bytes,
					 ow_py_parse_programs, &config->programs, &scsi))
		return -1;
	if (strlen(disk) >= sizeof(config->disk)) {
		PyErr_SetString(PyExc_ValueError, "the disk's name is too long");
		return -1;
	}
	memcpy(config->disk, disk, strlen(disk));
	config->is_scsi = scsi;
	return 0;
}

static int changes_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
	struct changes_object *object = (struct changes_object *)self;
	_cleanup_free_ char *log = malloc(OW_LOG_SIZE);
	struct ow_history_config config = {};
	int err;

	if (!log) {
		PyErr_NoMemory();
		return -1;
	}
	if (parse_config(args, kwargs, &config))
		return -1;
	ow_history_close(object->history);
	object->history = NULL;
	Py_BEGIN_ALLOW_THREADS;
	err = ow_history_open(&config, &object->history, log);
	Py_END_ALLOW_THREADS;
	if (!err)
		return 0;
	ow_py_raise_probe_error(err, "cannot load or attach the history tracer", log);
	return -1;
}

static struct ow_history *get_history(PyObject *self)
{
	struct ow_history *history = ((struct changes_object *)self)->history;

	if (!history)
		PyErr_SetString(PyExc_ValueError, "the history tracer is closed");
	return history;
}

static PyObject *changes_drain(PyObject *self, PyObject *Py_UNUSED(arg))
{
	struct ow_history *history = get_history(self);
	_cleanup_free_ struct ow_change *changes = NULL;
	int n;

	if (!history)
		return NULL;
	changes = malloc(MAX_CHANGES * sizeof(*changes));
	if (!changes)
		return PyErr_NoMemory();
	Py_BEGIN_ALLOW_THREADS;
	n = ow_history_drain(history, changes, MAX_CHANGES);
	Py_END_ALLOW_THREADS;
	if (n < 0)
		return ow_py_raise(n, "cannot read the ring of changes");
	return Py_BuildValue("(y#O)", (char *)changes, (Py_ssize_t)(n * sizeof(*changes)),
			     n == MAX_CHANGES ? Py_True : Py_False);
}

static PyObject *changes_loss(PyObject *self, PyObject *Py_UNUSED(arg))
{
	struct ow_history *history = get_history(self);
	struct ow_history_loss loss;

	if (!history)
		return NULL;
	loss = ow_history_loss(history);
	return Py_BuildValue("(KKK)", loss.write_sectors, loss.discard_sectors, loss.commands);
}

static PyObject *changes_programs(PyObject *self, PyObject *Py_UNUSED(arg))
{
	struct ow_program_info info[OW_MAX_PROGRAMS];
	struct ow_history *history = get_history(self);

	return history ? ow_py_programs_list(info, ow_history_programs(history, info)) : NULL;
}

static PyObject *changes_close(PyObject *self, PyObject *Py_UNUSED(arg))
{
	struct changes_object *object = (struct changes_object *)self;
	struct ow_history *history = object->history;

	object->history = NULL;
	Py_BEGIN_ALLOW_THREADS;
	ow_history_close(history);
	Py_END_ALLOW_THREADS;
	Py_RETURN_NONE;
}

static void changes_dealloc(PyObject *self)
{
	ow_history_close(((struct changes_object *)self)->history);
	ow_py_free(self);
}

static PyMethodDef changes_methods[] = {
	{"drain", changes_drain, METH_NOARGS, NULL},
	{"loss", changes_loss, METH_NOARGS, NULL},
	{"programs", changes_programs, METH_NOARGS, NULL},
	{"close", changes_close, METH_NOARGS, NULL},
	{},
};

static PyType_Slot changes_slots[] = {
	{Py_tp_init, changes_init},
	{Py_tp_dealloc, changes_dealloc},
	{Py_tp_methods, changes_methods},
	{},
};

static PyType_Spec changes_spec = {
	.name = "opwatch._native.Changes",
	.basicsize = sizeof(struct changes_object),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = changes_slots,
};

int ow_py_add_changes(PyObject *module)
{
	return ow_py_add_type(module, &changes_spec);
}
