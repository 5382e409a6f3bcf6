// SPDX-License-Identifier: MIT
/* nvme_get_log() and nvme_identify(): see _native.pyi. */
#include "_native/binding/native.h"

#include <errno.h>
#include <string.h>

#include "nvme.h"

/* Send the command and return (status, bytes). Steals @data. */
static PyObject *submit_command(int fd, struct nvme_admin_cmd *cmd, PyObject *data,
				const char *what)
{
	PyThreadState *thread = PyEval_SaveThread();
	int ret = ow_nvme_submit(fd, cmd);

	PyEval_RestoreThread(thread);
	if (ret < 0) {
		Py_DECREF(data);
		return ow_py_raise(ret, what);
	}
	return Py_BuildValue("iN", ret, data);
}

static PyObject *make_zero_bytes(Py_ssize_t len)
{
	PyObject *data = PyBytes_FromStringAndSize(NULL, len);

	if (data)
		memset(PyBytes_AsString(data), 0, len);
	return data;
}

static PyObject *nvme_get_log(PyObject *Py_UNUSED(self), PyObject *args)
{
	unsigned int lid, len, lsi = 0, uuid_index = 0, nsid = 0;
	struct nvme_admin_cmd cmd;
	struct ow_nvme_log log;
	PyObject *data;
	int fd;

	if (!PyArg_ParseTuple(args, "iII|III", &fd, &lid, &len, &lsi, &uuid_index, &nsid))
		return NULL;
	if (lid > 0xff || lsi > 0xffff || uuid_index > 0x7f || len > OW_NVME_LOG_MAX_BYTES)
		return ow_py_raise(-EINVAL, "Get Log Page");
	data = make_zero_bytes(len);
	if (!data)
		return NULL;
	log = (struct ow_nvme_log){
		.lid = lid, .lsi = lsi, .uuid_index = uuid_index, .nsid = nsid, .len = len};
	if (ow_nvme_prepare_log(&cmd, &log, PyBytes_AsString(data))) {
		Py_DECREF(data);
		return ow_py_raise(-EINVAL, "Get Log Page");
	}
	return submit_command(fd, &cmd, data, "Get Log Page");
}

static PyObject *nvme_identify(PyObject *Py_UNUSED(self), PyObject *args)
{
	unsigned int cns, nsid;
	struct nvme_admin_cmd cmd;
	PyObject *data;
	int fd;

	if (!PyArg_ParseTuple(args, "iII", &fd, &cns, &nsid))
		return NULL;
	if (cns > 0xff)
		return ow_py_raise(-EINVAL, "Identify");
	data = make_zero_bytes(OW_NVME_IDENTIFY_BYTES);
	if (!data)
		return NULL;
	ow_nvme_prepare_identify(&cmd, cns, nsid, PyBytes_AsString(data));
	return submit_command(fd, &cmd, data, "Identify");
}

static PyMethodDef nvme_methods[] = {
	{"nvme_get_log", nvme_get_log, METH_VARARGS, NULL},
	{"nvme_identify", nvme_identify, METH_VARARGS, NULL},
	{NULL, NULL, 0, NULL},
};

int ow_py_add_nvme(PyObject *module)
{
	return PyModule_AddFunctions(module, nvme_methods);
}
