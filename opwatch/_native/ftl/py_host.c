// SPDX-License-Identifier: MIT
/* opwatch._native.HostLoad and scale_requests(): see _native.pyi. */
#include "py_ftl.h"

#include <stdlib.h>
#include <string.h>

#include "ftl/host/host.h"

struct host_object {
	PyObject_HEAD struct ow_host host;
	PyObject *drive;   /* the Ftl that the host writes to */
	PyObject *records; /* bytes of struct ow_host_record, or NULL */
};

/* Copy an array from bytes. Returns NULL with an exception for another length. */
static void *copy_array(const Py_buffer *view, size_t size, uint32_t *count)
{
	void *copy;

	if (view->len % size || view->len / size > 1 << 16) {
		PyErr_SetString(PyExc_ValueError, "not an array of this structure");
		return NULL;
	}
	*count = view->len / size;
	copy = malloc(view->len ? view->len : 1);
	if (!copy)
		return PyErr_NoMemory();
	memcpy(copy, view->buf, view->len);
	return copy;
}

static int parse_shape(PyObject *tuple, struct ow_host_shape *shape)
{
	unsigned long long align, blocks, ranks, width, position;
	Py_buffer sizes, zones, differences;

	if (!PyTuple_Check(tuple) ||
	    !PyArg_ParseTuple(tuple, "IIKKKddKKy*y*y*", &shape->kind, &shape->random_percent,
			      &align, &blocks, &ranks, &shape->power, &shape->center, &width,
			      &position, &sizes, &zones, &differences)) {
		if (!PyErr_Occurred())
			PyErr_SetString(PyExc_TypeError, "a shape is a tuple");
		return -1;
	}
	shape->align = align;
	shape->blocks = blocks;
	shape->ranks = ranks;
	shape->normal_width = width;
	shape->position = position;
	shape->sizes = copy_array(&sizes, sizeof(*shape->sizes), &shape->size_count);
	if (shape->sizes)
		shape->zones = copy_array(&zones, sizeof(*shape->zones), &shape->zone_count);
	if (shape->zones)
		shape->differences = copy_array(&differences, sizeof(*shape->differences),
						&shape->difference_count);
	PyBuffer_Release(&sizes);
	PyBuffer_Release(&zones);
	PyBuffer_Release(&differences);
	return shape->differences ? 0 : -1;
}

static int parse_job(PyObject *tuple, struct ow_host_job *job)
{
	PyObject *write, *read;

	if (!tuple || !PyTuple_Check(tuple) ||
	    !PyArg_ParseTuple(tuple, "dIIOO", &job->weight, &job->read_ppm, &job->flush_every,
			      &write, &read)) {
		if (!PyErr_Occurred())
			PyErr_SetString(PyExc_TypeError, "a job is a tuple");
		return -1;
	}
	return parse_shape(write, &job->write) || parse_shape(read, &job->read) ? -1 : 0;
}

static int parse_jobs(PyObject *jobs, struct ow_host *host)
{
	Py_ssize_t count = PySequence_Size(jobs);

	if (count < 0)
		return -1;
	host->jobs = calloc(count ? count : 1, sizeof(*host->jobs));
	if (!host->jobs) {
		PyErr_NoMemory();
		return -1;
	}
	for (Py_ssize_t i = 0; i < count; i++) {
		PyObject *item = PySequence_GetItem(jobs, i);
		int ret;

		host->job_count = i + 1;
		ret = parse_job(item, &host->jobs[i]);
		Py_XDECREF(item);
		if (ret)
			return -1;
	}
	return 0;
}

static int host_init(struct host_object *self, PyObject *jobs, PyObject *records)
{
	struct ow_ftl *ftl = ow_py_get_drive(self->drive);
	int ret;

	if (!ftl || parse_jobs(jobs, &self->host))
		return -1;
	if (records != Py_None) {
		if (!PyBytes_Check(records) ||
		    PyBytes_Size(records) % sizeof(struct ow_host_record)) {
			PyErr_SetString(PyExc_ValueError, "records are bytes of 16 each");
			return -1;
		}
		self->records = Py_NewRef(records);
		self->host.records = (const void *)PyBytes_AsString(records);
		self->host.record_count = PyBytes_Size(records) / sizeof(struct ow_host_record);
	}
	Py_BEGIN_ALLOW_THREADS ret = ow_host_prepare(&self->host, ftl);
	Py_END_ALLOW_THREADS if (ret) ow_py_raise(ret, "invalid load");
	return ret;
}

static PyObject *host_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"drive",       "jobs", "records", "used_bytes",
				"queue_depth", "seed", NULL};
	unsigned long long used_bytes, seed;
	PyObject *drive, *jobs, *records;
	struct host_object *self;
	unsigned int queue_depth;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OOKIK", names, ow_py_drive_type, &drive,
					 &jobs, &records, &used_bytes, &queue_depth, &seed))
		return NULL;
	self = (struct host_object *)PyType_GenericAlloc(type, 0);
	if (!self)
		return NULL;
	self->drive = Py_NewRef(drive);
	self->host.used_bytes = used_bytes;
	self->host.queue_depth = queue_depth;
	self->host.rng = seed;
	if (host_init(self, jobs, records)) {
		Py_DECREF(self);
		return NULL;
	}
	return (PyObject *)self;
}

static void host_dealloc(PyObject *object)
{
	struct host_object *self = (struct host_object *)object;

	ow_host_release(&self->host);
	Py_XDECREF(self->records);
	Py_XDECREF(self->drive);
	ow_py_free(object);
}

static PyObject *host_run(PyObject *object, PyObject *args)
{
	struct host_object *self = (struct host_object *)object;
	struct ow_py_ftl *drive = (struct ow_py_ftl *)self->drive;
	struct ow_ftl *ftl = ow_py_get_drive(self->drive);
	struct ow_host_progress progress = {0};
	unsigned long long bytes;
	int ret;

	if (!ftl || !PyArg_ParseTuple(args, "K", &bytes))
		return NULL;
	drive->is_busy = 1;
	Py_BEGIN_ALLOW_THREADS ret = ow_host_run(&self->host, ftl, bytes, &progress);
	Py_END_ALLOW_THREADS drive->is_busy = 0;
	if (ret)
		return ow_py_raise(ret, "run");
	return Py_BuildValue("(KKK)", (unsigned long long)progress.ios,
			     (unsigned long long)progress.host_bytes,
			     (unsigned long long)progress.nand_bytes);
}

static PyObject *host_play(PyObject *object, PyObject *args)
{
	struct host_object *self = (struct host_object *)object;
	struct ow_py_ftl *drive = (struct ow_py_ftl *)self->drive;
	struct ow_host_progress progress = {0};
	struct ow_service *service;
	unsigned long long bytes;
	struct ow_ftl *ftl;
	PyObject *clock;
	int ret;

	if (!PyArg_ParseTuple(args, "OK", &clock, &bytes))
		return NULL;
	ftl = ow_py_get_drive(self->drive);
	service = ow_py_get_service(clock, self->drive);
	if (!ftl || !service)
		return NULL;
	drive->is_busy = 1;
	Py_BEGIN_ALLOW_THREADS ret = ow_host_play(&self->host, service, ftl, bytes, &progress);
	Py_END_ALLOW_THREADS drive->is_busy = 0;
	if (ret)
		return ow_py_raise(ret, "play");
	return Py_BuildValue("(KKKKy#)", (unsigned long long)progress.ios,
			     (unsigned long long)progress.host_bytes,
			     (unsigned long long)progress.nand_bytes,
			     (unsigned long long)progress.ns, (const char *)progress.slots,
			     (Py_ssize_t)sizeof(progress.slots));
}

static PyObject *host_draw(PyObject *object, PyObject *args)
{
	struct host_object *self = (struct host_object *)object;
	PyObject *list = PyList_New(0);
	unsigned int count;

	if (!list || !PyArg_ParseTuple(args, "I", &count)) {
		Py_XDECREF(list);
		return NULL;
	}
	for (unsigned int i = 0; i < count; i++) {
		struct ow_service_io io;
		PyObject *item;
		int ret;

		ow_host_draw(&self->host, &io);
		item = Py_BuildValue("(IKK)", io.op, (unsigned long long)io.offset_bytes,
				     (unsigned long long)io.len_bytes);
		ret = item ? PyList_Append(list, item) : -1;
		Py_XDECREF(item);
		if (ret) {
			Py_DECREF(list);
			return NULL;
		}
	}
	return list;
}

/* Records, the number of writes of each unit as u32, and the chosen units as u64. */
static int scale(const struct ow_host_requests *requests, uint64_t count, uint32_t unit_bytes,
		 PyObject *chosen, PyObject *writes, struct ow_host_record *records, uint64_t *kept)
{
	uint64_t *numbers = chosen ? (uint64_t *)PyBytes_AsString(chosen) : NULL;
	uint32_t *counts = (uint32_t *)PyBytes_AsString(writes);
	int ret = 0;

	memset(counts, 0, count * sizeof(*counts));
	Py_BEGIN_ALLOW_THREADS if (chosen) ret = ow_host_choose_units(requests, count, numbers);
	if (!ret)
		*kept = ow_host_scale(requests, numbers, count, unit_bytes, records, counts);
	Py_END_ALLOW_THREADS return ret;
}

static PyObject *scale_checked(const struct ow_host_requests *requests, uint64_t count,
			       uint32_t unit_bytes)
{
	size_t size = sizeof(struct ow_host_record);
	PyObject *records = PyBytes_FromStringAndSize(NULL, requests->count * size);
	PyObject *writes = PyBytes_FromStringAndSize(NULL, count * sizeof(uint32_t));
	PyObject *chosen =
		count < requests->units ? PyBytes_FromStringAndSize(NULL, count * 8) : NULL;
	PyObject *kept_records = NULL;
	uint64_t kept = 0;
	int ret;

	if (records && writes && (chosen || count == requests->units)) {
		ret = scale(requests, count, unit_bytes, chosen, writes,
			    (struct ow_host_record *)PyBytes_AsString(records), &kept);
		if (ret)
			ow_py_raise(ret, "scale requests");
		else
			kept_records = PySequence_GetSlice(records, 0, kept * size);
	}
	Py_XDECREF(records);
	if (!kept_records) {
		Py_XDECREF(writes);
		Py_XDECREF(chosen);
		return NULL;
	}
	return chosen ? Py_BuildValue("(NNN)", kept_records, writes, chosen)
		      : Py_BuildValue("(NNO)", kept_records, writes, Py_None);
}

static PyObject *scale_requests(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"", "", "", "", "", "", "owners", NULL};
	struct ow_host_requests requests = {0};
	unsigned long long units, count;
	Py_buffer sectors, lengths, trims, owners = {0};
	PyObject *answer = NULL;
	unsigned int unit_bytes;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*y*y*KKI|$y*", names, &sectors, &lengths,
					 &trims, &units, &count, &unit_bytes, &owners))
		return NULL;
	requests.sectors = sectors.buf;
	requests.lengths = lengths.buf;
	requests.trims = trims.buf;
	requests.owners = owners.len ? owners.buf : NULL;
	requests.count = trims.len;
	requests.units = units;
	requests.sectors_per_unit = unit_bytes / OW_FTL_SECTOR_BYTES;
	for (uint64_t i = 0;
	     i < requests.count && sectors.len == 8 * trims.len && lengths.len == 4 * trims.len;
	     i++)
		if (requests.sectors[i] > 1ULL << 48 ||
		    requests.sectors[i] + requests.lengths[i] > units * requests.sectors_per_unit)
			units = 0;
	if (sectors.len != 8 * trims.len || lengths.len != 4 * trims.len ||
	    (owners.len && owners.len != trims.len) || !count || count > units ||
	    count > 1ULL << 32 || !requests.sectors_per_unit)
		PyErr_SetString(PyExc_ValueError, "requests beyond the disk, or impossible units");
	else
		answer = scale_checked(&requests, count, unit_bytes);
	PyBuffer_Release(&sectors);
	PyBuffer_Release(&lengths);
	PyBuffer_Release(&trims);
	PyBuffer_Release(&owners);
	return answer;
}

static PyMethodDef host_methods[] = {
	{"run", host_run, METH_VARARGS, NULL},
	{"play", host_play, METH_VARARGS, NULL},
	{"draw", host_draw, METH_VARARGS, NULL},
	{NULL, NULL, 0, NULL},
};

static PyMethodDef functions[] = {
	{"scale_requests", (PyCFunction)(void (*)(void))scale_requests,
	 METH_VARARGS | METH_KEYWORDS, NULL},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot host_slots[] = {
	{Py_tp_new, host_new},
	{Py_tp_dealloc, host_dealloc},
	{Py_tp_methods, host_methods},
	{0, NULL},
};

static PyType_Spec host_spec = {
	.name = "opwatch._native.HostLoad",
	.basicsize = sizeof(struct host_object),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = host_slots,
};

int ow_py_add_host(PyObject *module)
{
	return PyModule_AddFunctions(module, functions) || ow_py_add_type(module, &host_spec) ? -1
											      : 0;
}
