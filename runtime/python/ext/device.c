/* SPDX-License-Identifier: Apache-2.0 */
/* device.c: functions of _hvd._native for tensors on GPUs: the report about the
 * machine, and streams that wait for the end of operations. Streams are passed as
 * integers, the handles that frameworks return; 0 is the legacy default stream.
 *
 * A thread waits here only until the operations are submitted to the GPU, in slices
 * as ending.c's wait; the stream does the rest. Called by _hvd/gpu.py and
 * _hvd/handles.py. */
#include "runtime/python/ext/module.h"

#include <stdint.h>

/* --- waiting --- */

static int device_wait_once(const struct waiting *w, int64_t slice_ms)
{
    return hvd_wait_many(w->handles, w->n, w->stream, slice_ms);
}

static PyObject *py_wait_on_stream(PyObject *module, PyObject *args)
{
    unsigned long long stream;
    long long number, timeout_ms = -1;
    hvd_handle handle;

    if (!PyArg_ParseTuple(args, "LK|L:wait_on_stream", &number, &stream, &timeout_ms))
        return NULL;
    handle = number;
    return wait_in_slices(module, device_wait_once,
                          &(struct waiting){.handles = &handle,
                                            .n = 1,
                                            .stream = (void *)(uintptr_t)stream},
                          timeout_ms);
}

static PyObject *py_wait_many(PyObject *module, PyObject *args)
{
    unsigned long long stream;
    PyObject *numbers, *ret;
    int64_t *handles;

    if (!PyArg_ParseTuple(args, "O!K:wait_many", &PyTuple_Type, &numbers, &stream))
        return NULL;
    if (PyTuple_Size(numbers) > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "too many handles");
        return NULL;
    }
    handles = int64s_from(numbers);
    if (!handles)
        return NULL;
    ret = wait_in_slices(module, device_wait_once,
                         &(struct waiting){.handles = handles,
                                           .n = (int)PyTuple_Size(numbers),
                                           .stream = (void *)(uintptr_t)stream},
                         -1);
    PyMem_Free(handles);
    return ret;
}

/* --- the report --- */

static PyObject *py_result_device(PyObject *module, PyObject *args)
{
    long long handle;
    int device = HVD_DEVICE_HOST, status;

    if (!PyArg_ParseTuple(args, "L:result_device", &handle))
        return NULL;
    status = hvd_result_device(handle, &device);
    return status == HVD_OK ? PyLong_FromLong(device) : raise_status(module, status, 0);
}

/* Each call creates a new report and opens libraries, so it may take long. */
static PyObject *py_device_report(PyObject *module, PyObject *unused)
{
    char text[16384];
    size_t length;

    (void)module;
    (void)unused;
    Py_BEGIN_ALLOW_THREADS length = hvd_device_report(text, sizeof(text));
    Py_END_ALLOW_THREADS if (length >= sizeof(text)) length = sizeof(text) - 1;
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace");
}

static PyObject *py_device_hint(PyObject *module, PyObject *args)
{
    PyObject *path;

    (void)module;
    if (!PyArg_ParseTuple(args, "O&:device_hint", PyUnicode_FSConverter, &path))
        return NULL;
    hvd_device_hint(PyBytes_AsString(path));
    Py_DECREF(path);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"wait_on_stream", py_wait_on_stream, METH_VARARGS,
     "wait_on_stream(handle, stream[, timeout_ms]): the stream waits for its end"},
    {"wait_many", py_wait_many, METH_VARARGS,
     "wait_many(handles, stream): the stream waits for the end of all"},
    {"result_device", py_result_device, METH_VARARGS,
     "result_device(handle) -> the GPU that its output is on, or -1"},
    {"device_report", py_device_report, METH_NOARGS,
     "one line of JSON about GPUs, driver and NCCL; opens libraries each time"},
    {"device_hint", py_device_hint, METH_VARARGS,
     "device_hint(path): of the NCCL that the framework has brought"},
    {NULL, NULL, 0, NULL},
};

int device_add_to(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
