/* SPDX-License-Identifier: Apache-2.0 */
/* ending.c: functions of _hvd._native for operations that end: poll, wait, results,
 * release; and the memory behind addresses. Called by _hvd/handles.py,
 * _hvd/objects.py and _hvd/torch. */
#include "runtime/python/ext/module.h"

#include <stdint.h>
#include <string.h>

#include "runtime/python/ext/capsule.h"

static PyObject *py_poll(PyObject *module, PyObject *args)
{
    long long handle;

    (void)module;
    if (!PyArg_ParseTuple(args, "L:poll", &handle))
        return NULL;
    return PyBool_FromLong(hvd_poll(handle) != HVD_IN_PROGRESS);
}

PyObject *wait_in_slices(PyObject *module,
                         int (*once)(const struct waiting *w, int64_t slice_ms),
                         const struct waiting *w,
                         long long timeout_ms)
{
    int status;

    for (;;) {
        int64_t slice_ms = WAIT_SLICE_MS;

        if (timeout_ms >= 0 && timeout_ms < slice_ms)
            slice_ms = timeout_ms;
        Py_BEGIN_ALLOW_THREADS status = once(w, slice_ms);
        Py_END_ALLOW_THREADS if (status != HVD_TIMEOUT) break;
        if (PyErr_CheckSignals())
            return NULL;
        if (timeout_ms >= 0 && (timeout_ms -= slice_ms) == 0) {
            PyErr_SetString(PyExc_TimeoutError, "the operation continues");
            return NULL;
        }
    }
    if (status != HVD_OK)
        return raise_status(module, status, 0);
    Py_RETURN_NONE;
}

static int ending_wait_once(const struct waiting *w, int64_t slice_ms)
{
    return hvd_wait(w->handles[0], slice_ms);
}

/* wait(handle[, timeout_ms]): returns None at the end of the operation or raises, after
 * timeout_ms TimeoutError. A signal handler's exception (KeyboardInterrupt) is passed
 * on. After it and after a timeout the operation continues. */
static PyObject *py_wait(PyObject *module, PyObject *args)
{
    long long handle, timeout_ms = -1;
    hvd_handle number;

    if (!PyArg_ParseTuple(args, "L|L:wait", &handle, &timeout_ms))
        return NULL;
    number = handle;
    return wait_in_slices(module, ending_wait_once,
                          &(struct waiting){.handles = &number}, timeout_ms);
}

/* result(handle) -> (address, shape): memory of the runtime, valid until release. */
static PyObject *py_result(PyObject *module, PyObject *args)
{
    int64_t shape[HVD_MAX_DIMS];
    long long handle;
    void *data = NULL;
    int ndim = 0, status;
    PyObject *tuple;

    if (!PyArg_ParseTuple(args, "L:result", &handle))
        return NULL;
    status = hvd_result(handle, &data, &ndim, shape);
    if (status != HVD_OK)
        return raise_status(module, status, 0);
    tuple = tuple_of_int64(shape, ndim);
    return tuple ? Py_BuildValue("KN", (unsigned long long)(uintptr_t)data, tuple)
                 : NULL;
}

/* take(pending, handle, dtype) -> DLPack capsule over the result, whose holder releases
 * the handle. Removes it from pending; None if it is absent, because it was taken
 * before. Atomic with regard to other threads and signal handlers. */
static PyObject *py_take(PyObject *module, PyObject *args)
{
    int64_t shape[HVD_MAX_DIMS];
    PyObject *pending, *number, *capsule, *entry;
    hvd_handle handle;
    void *data = NULL;
    int dtype, device = HVD_DEVICE_HOST, ndim = 0, status;

    if (!PyArg_ParseTuple(args, "O!O!i:take", &PyDict_Type, &pending, &PyLong_Type,
                          &number, &dtype))
        return NULL;
    entry = PyDict_GetItemWithError(pending, number); /* borrowed */
    if (!entry && PyErr_Occurred())
        return NULL;
    if (!entry)
        Py_RETURN_NONE;
    handle = PyLong_AsLongLong(number);
    if (handle == -1 && PyErr_Occurred())
        return NULL;
    status = hvd_result(handle, &data, &ndim, shape);
    if (status == HVD_OK)
        status = hvd_result_device(handle, &device);
    if (status != HVD_OK)
        return raise_status(module, status, 0);
    capsule = capsule_new(handle, dtype, data, device, ndim, shape);
    if (capsule && PyDict_DelItem(pending, number)) /* cannot fail: the key exists */
        Py_CLEAR(capsule);
    return capsule;
}

/* received_splits(handle) -> rows from each rank, of an alltoall that has ended. */
static PyObject *py_received_splits(PyObject *module, PyObject *args)
{
    int64_t few[64], *rows = few;
    long long handle;
    PyObject *tuple;
    int n;

    if (!PyArg_ParseTuple(args, "L:received_splits", &handle))
        return NULL;
    n = hvd_received_splits(handle, few, (int)(sizeof(few) / sizeof(few[0])));
    if (n > (int)(sizeof(few) / sizeof(few[0]))) {
        rows = PyMem_Malloc((size_t)n * sizeof(*rows));
        if (!rows)
            return PyErr_NoMemory();
        n = hvd_received_splits(handle, rows, n);
    }
    tuple = n < 0 ? raise_status(module, n, 0) : tuple_of_int64(rows, n);
    if (rows != few)
        PyMem_Free(rows);
    return tuple;
}

/* A rank that the runtime keeps with a handle. */
static PyObject *rank_of_handle(PyObject *module,
                                PyObject *args,
                                const char *format,
                                int (*get)(hvd_handle))
{
    long long handle;
    int rank;

    if (!PyArg_ParseTuple(args, format, &handle))
        return NULL;
    rank = get(handle);
    return rank < 0 ? raise_status(module, rank, 0) : PyLong_FromLong(rank);
}

static PyObject *py_joined_last(PyObject *module, PyObject *args)
{
    return rank_of_handle(module, args, "L:joined_last", hvd_joined_last);
}

static PyObject *py_probed_rank(PyObject *module, PyObject *args)
{
    return rank_of_handle(module, args, "L:probed_rank", hvd_probed_rank);
}

static PyObject *py_release(PyObject *module, PyObject *args)
{
    long long handle;

    (void)module;
    if (!PyArg_ParseTuple(args, "L:release", &handle))
        return NULL;
    (void)hvd_release(handle); /* an unknown handle counts as released */
    Py_RETURN_NONE;
}

/* --- memory --- */

static PyObject *py_address(PyObject *module, PyObject *args)
{
    PyObject *array;

    (void)module;
    if (!PyArg_ParseTuple(args, "O:address", &array))
        return NULL;
    if (!PyByteArray_Check(array)) {
        PyErr_SetString(PyExc_TypeError, "address() takes a bytearray");
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(
        (unsigned long long)(uintptr_t)PyByteArray_AsString(array));
}

static PyObject *py_copy(PyObject *module, PyObject *args)
{
    unsigned long long to, from, n;

    (void)module;
    if (!PyArg_ParseTuple(args, "KKK:copy", &to, &from, &n))
        return NULL;
    if (n) {
        Py_BEGIN_ALLOW_THREADS memcpy((void *)(uintptr_t)to,
                                      (const void *)(uintptr_t)from, (size_t)n);
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"poll", py_poll, METH_VARARGS, "poll(handle) -> has it ended?"},
    {"wait", py_wait, METH_VARARGS, "wait(handle): until it has ended"},
    {"result", py_result, METH_VARARGS, "result(handle) -> (address, shape)"},
    {"take", py_take, METH_VARARGS,
     "take(pending, handle, dtype) -> DLPack capsule of the result, or None"},
    {"received_splits", py_received_splits, METH_VARARGS,
     "received_splits(handle) -> rows from each rank"},
    {"joined_last", py_joined_last, METH_VARARGS, "joined_last(handle) -> rank"},
    {"probed_rank", py_probed_rank, METH_VARARGS, "probed_rank(handle) -> rank"},
    {"release", py_release, METH_VARARGS, "release(handle)"},
    {"address", py_address, METH_VARARGS, "address(bytearray)"},
    {"copy", py_copy, METH_VARARGS, "copy(to, from, n_bytes)"},
    {NULL, NULL, 0, NULL},
};

int ending_add_to(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
