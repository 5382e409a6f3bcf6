// SPDX-License-Identifier: MIT
/* opwatch._native.Service: see _native.pyi. */
#include "py_ftl.h"

#include <string.h>

#include "ftl/service/service.h"

#define CONFIG(name) OW_PY_FIELD(ow_service_config, name)

static const struct ow_py_field config_fields[] = {
	CONFIG(dies),
	CONFIG(planes),
	CONFIG(channels),
	CONFIG(page_bytes),
	CONFIG(block_bytes),
	CONFIG(read_ns),
	CONFIG(program_ns),
	CONFIG(program_slc_ns),
	CONFIG(erase_ns),
	CONFIG(suspend_ns),
	CONFIG(channel_bytes_per_s),
	CONFIG(host_bytes_per_s),
	CONFIG(command_ns),
	CONFIG(latency_ns),
	CONFIG(buffer_bytes),
	CONFIG(flush_ns),
	CONFIG(jitter_permille),
	CONFIG(gc_burst),
	CONFIG(flush_stops),
	CONFIG(trim_ns),
	CONFIG(idle_after_ns),
	CONFIG(throttle_after_ns),
	CONFIG(throttle_pause_ns),
	CONFIG(throttle_permille),
	CONFIG(seed),
	{NULL, 0, 0},
};

struct service_object {
	PyObject_HEAD struct ow_service *service;
	PyObject *drive; /* the Ftl that the service keeps alive */
};

PyTypeObject *ow_py_drive_type;
static PyTypeObject *service_type;

static PyObject *service_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct ow_service_config config;
	struct service_object *self;
	PyObject *drive, *values;
	int ret;

	ow_service_config_init(&config);
	if ((kwargs && PyDict_Size(kwargs)) ||
	    !PyArg_ParseTuple(args, "O!O!", ow_py_drive_type, &drive, &PyDict_Type, &values))
		return PyErr_Occurred() ? NULL
					: PyErr_Format(PyExc_TypeError, "Service(ftl, config)");
	if (ow_py_set_fields(&config, config_fields, values))
		return NULL;
	self = (struct service_object *)PyType_GenericAlloc(type, 0);
	if (!self)
		return NULL;
	ret = ow_service_create(&self->service, &config);
	if (ret) {
		Py_DECREF(self);
		return ow_py_raise(ret, "invalid timing");
	}
	self->drive = Py_NewRef(drive);
	return (PyObject *)self;
}

static void service_dealloc(PyObject *object)
{
	struct service_object *self = (struct service_object *)object;

	ow_service_destroy(self->service);
	Py_XDECREF(self->drive);
	ow_py_free(object);
}

struct ow_service *ow_py_get_service(PyObject *object, PyObject *drive)
{
	struct service_object *self = (struct service_object *)object;

	if (!PyObject_TypeCheck(object, service_type) || self->drive != drive) {
		PyErr_SetString(PyExc_TypeError, "not the clock of this drive");
		return NULL;
	}
	return self->service;
}

static PyObject *service_submit(PyObject *object, PyObject *args)
{
	struct service_object *self = (struct service_object *)object;
	struct ow_ftl *ftl = ow_py_get_drive(self->drive);
	unsigned long long offset_bytes, len_bytes, arrive_ns;
	struct ow_service_io io = {0};
	uint64_t done_ns;
	int ret;

	if (!ftl || !PyArg_ParseTuple(args, "IKKK|I", &io.op, &offset_bytes, &len_bytes, &arrive_ns,
				      &io.stream))
		return NULL;
	io.offset_bytes = offset_bytes;
	io.len_bytes = len_bytes;
	io.arrive_ns = arrive_ns;
	ret = ow_service_submit(self->service, ftl, &io, &done_ns);
	return ret ? ow_py_raise(ret, "submit") : PyLong_FromUnsignedLongLong(done_ns);
}

static PyObject *service_pause(PyObject *object, PyObject *args)
{
	struct service_object *self = (struct service_object *)object;
	struct ow_ftl *ftl = ow_py_get_drive(self->drive);
	unsigned long long pause_ns;
	int ret;

	if (!ftl || !PyArg_ParseTuple(args, "K", &pause_ns))
		return NULL;
	ret = ow_service_pause(self->service, ftl, pause_ns);
	if (ret)
		return ow_py_raise(ret, "pause");
	Py_RETURN_NONE;
}

static PyObject *service_now(PyObject *object, PyObject *Py_UNUSED(ignored))
{
	struct service_object *self = (struct service_object *)object;

	return PyLong_FromUnsignedLongLong(ow_service_get_now_ns(self->service));
}

static int parse_run(PyObject *args, PyObject *kwargs, struct ow_ftl_workload *load,
		     struct ow_service_run *run)
{
	static char *names[] = {"io_bytes",	"queue_depth", "read_ppm",   "bucket_ns",
				"bucket_count", "zones",       "sequential", "trim_ppm",
				"rng",		"position",    NULL};
	unsigned long long io_bytes, bucket_ns, bucket_count, rng, position;
	PyObject *zones;
	int sequential;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$KIIKKOpIKK", names, &io_bytes,
					 &run->queue_depth, &run->read_ppm, &bucket_ns,
					 &bucket_count, &zones, &sequential, &load->trim_ppm, &rng,
					 &position))
		return -1;
	run->io_bytes = io_bytes;
	run->bucket_ns = bucket_ns;
	run->bucket_count = bucket_count;
	load->sequential = sequential;
	load->rng = rng;
	load->position = position;
	return ow_py_parse_workload(zones, load);
}

static PyObject *service_run(PyObject *object, PyObject *args, PyObject *kwargs)
{
	struct service_object *self = (struct service_object *)object;
	struct ow_py_ftl *drive = (struct ow_py_ftl *)self->drive;
	struct ow_ftl *ftl = ow_py_get_drive(self->drive);
	struct ow_ftl_workload load = {0};
	struct ow_service_run run = {0};
	PyObject *buckets, *state;
	int ret;

	if (!ftl || parse_run(args, kwargs, &load, &run))
		return NULL;
	if (run.bucket_count > 1 << 24)
		return PyErr_Format(PyExc_ValueError, "too many intervals");
	buckets = PyBytes_FromStringAndSize(NULL, run.bucket_count * sizeof(*run.buckets));
	if (!buckets)
		return NULL;
	run.buckets = (struct ow_service_bucket *)PyBytes_AsString(buckets);
	memset(run.buckets, 0, run.bucket_count * sizeof(*run.buckets));
	drive->is_busy = 1;
	Py_BEGIN_ALLOW_THREADS ret = ow_service_run(self->service, ftl, &load, &run);
	Py_END_ALLOW_THREADS drive->is_busy = 0;
	state = ret ? ow_py_raise(ret, "run") : ow_py_build_workload_state(&load);
	if (!state) {
		Py_DECREF(buckets);
		return NULL;
	}
	return Py_BuildValue("(Ny#N)", buckets, (const char *)run.slots,
			     (Py_ssize_t)sizeof(run.slots), state);
}

static PyMethodDef service_methods[] = {
	{"submit", service_submit, METH_VARARGS, NULL},
	{"pause", service_pause, METH_VARARGS, NULL},
	{"now_ns", service_now, METH_NOARGS, NULL},
	{"run", (PyCFunction)(void (*)(void))service_run, METH_VARARGS | METH_KEYWORDS, NULL},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot service_slots[] = {
	{Py_tp_new, service_new},
	{Py_tp_dealloc, service_dealloc},
	{Py_tp_methods, service_methods},
	{0, NULL},
};

static PyType_Spec service_spec = {
	.name = "opwatch._native.Service",
	.basicsize = sizeof(struct service_object),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = service_slots,
};

int ow_py_add_service(PyObject *module)
{
	/* Keep the types forever: a service checks the type of its drive, and a host that of its
	 * clock. */
	ow_py_drive_type = (PyTypeObject *)PyObject_GetAttrString(module, "Ftl");
	if (!ow_py_drive_type || ow_py_add_type(module, &service_spec))
		return -1;
	service_type = (PyTypeObject *)PyObject_GetAttrString(module, "Service");
	return service_type ? 0 : -1;
}
