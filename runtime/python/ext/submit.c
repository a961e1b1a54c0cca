/* SPDX-License-Identifier: Apache-2.0 */
/* submit.c: functions of _hvd._native that start an operation and return its handle.
 *
 * All start with the same arguments: f(pending, entry, tensor, ...). tensor is a tuple
 *
 *   (name, data, output, dtype, shape[, group, group_size[, is_held[, device, stream]]])
 *
 * device and stream are for memory of a GPU (device.c); barrier and join have a name
 * instead. On success pending[handle] is set to entry, which keeps memory alive. That
 * is done here because no Python signal handler can run in between. Nothing here
 * blocks, so the GIL is kept. Called by _hvd/handles.py. */
#include "runtime/python/ext/module.h"

#include <stdint.h>
#include <stdlib.h>

/* The arguments of every submission. */
struct submission {
    PyObject *module;
    PyObject *pending, *entry;
    struct hvd_tensor t;
    int64_t shape[HVD_MAX_DIMS];
};

/* Fills s->shape from a tuple of ints (torch.Size is one); 0, or -1 with an
 * exception. */
static int shape_from(struct submission *s, PyObject *tuple)
{
    Py_ssize_t n = PyTuple_Size(tuple);

    if (n > HVD_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError,
                     "tensor \"%s\" has %zd dimensions; at most %d are supported",
                     s->t.name, n, HVD_MAX_DIMS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        s->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        if (s->shape[i] == -1 && PyErr_Occurred())
            return -1;
    }
    s->t.ndim = (int)n;
    s->t.shape = s->shape;
    return 0;
}

/* Addresses are Python integers. Strings are borrowed for the call. */
static int tensor_from(struct submission *s, PyObject *tuple)
{
    unsigned long long data, output, stream = 0;
    PyObject *shape;

    s->t.size_bytes = sizeof(s->t);
    s->t.device = -1;
    if (!PyArg_ParseTuple(tuple, "sKKiO!|zipiK:tensor", &s->t.name, &data, &output,
                          &s->t.dtype, &PyTuple_Type, &shape, &s->t.group,
                          &s->t.group_size, &s->t.is_held, &s->t.device, &stream))
        return -1;
    s->t.stream = (void *)(uintptr_t)stream;
    s->t.data = (void *)(uintptr_t)data;
    s->t.output = (void *)(uintptr_t)output;
    return shape_from(s, shape);
}

static PyObject *
submission_finish(const struct submission *s, int status, hvd_handle handle)
{
    PyObject *number;

    if (status != HVD_OK)
        return raise_status(s->module, status, 1);
    number = PyLong_FromLongLong(handle);
    if (number && PyDict_SetItem(s->pending, number, s->entry) == 0)
        return number;
    Py_INCREF(s->entry); /* the operation runs, so its memory is never freed */
    Py_XDECREF(number);
    return NULL;
}

/* --- results in the caller's memory --- */

static PyObject *py_allreduce(PyObject *module, PyObject *args)
{
    struct submission s = {.module = module};
    PyObject *tensor;
    int op, process_set, status;
    double prescale, postscale;
    const char *compression = NULL;
    hvd_handle handle = 0;

    if (!PyArg_ParseTuple(args, "O!OO!iddi|z:allreduce", &PyDict_Type, &s.pending,
                          &s.entry, &PyTuple_Type, &tensor, &op, &prescale, &postscale,
                          &process_set, &compression)
        || tensor_from(&s, tensor))
        return NULL;
    s.t.compression = compression;
    status = hvd_allreduce_async(&s.t, op, prescale, postscale, process_set, &handle);
    return submission_finish(&s, status, handle);
}

static PyObject *py_reduce(PyObject *module, PyObject *args)
{
    struct submission s = {.module = module};
    PyObject *tensor;
    int op, root_rank, process_set, status;
    double prescale, postscale;
    hvd_handle handle = 0;

    if (!PyArg_ParseTuple(args, "O!OO!iddii:reduce", &PyDict_Type, &s.pending, &s.entry,
                          &PyTuple_Type, &tensor, &op, &prescale, &postscale,
                          &root_rank, &process_set)
        || tensor_from(&s, tensor))
        return NULL;
    status = hvd_reduce_async(&s.t, op, prescale, postscale, root_rank, process_set,
                              &handle);
    return submission_finish(&s, status, handle);
}

static PyObject *py_broadcast(PyObject *module, PyObject *args)
{
    struct submission s = {.module = module};
    PyObject *tensor;
    int root_rank, process_set, status;
    hvd_handle handle = 0;

    if (!PyArg_ParseTuple(args, "O!OO!ii:broadcast", &PyDict_Type, &s.pending, &s.entry,
                          &PyTuple_Type, &tensor, &root_rank, &process_set)
        || tensor_from(&s, tensor))
        return NULL;
    status = hvd_broadcast_async(&s.t, root_rank, process_set, &handle);
    return submission_finish(&s, status, handle);
}

/* To or from a peer, or within a process set. */
static PyObject *
submission_transfer(PyObject *module,
                    PyObject *args,
                    int (*function)(const struct hvd_tensor *, int, hvd_handle *))
{
    struct submission s = {.module = module};
    PyObject *tensor;
    int peer, status;
    hvd_handle handle = 0;

    if (!PyArg_ParseTuple(args, "O!OO!i", &PyDict_Type, &s.pending, &s.entry,
                          &PyTuple_Type, &tensor, &peer)
        || tensor_from(&s, tensor))
        return NULL;
    status = function(&s.t, peer, &handle);
    return submission_finish(&s, status, handle);
}

static PyObject *py_send(PyObject *module, PyObject *args)
{
    return submission_transfer(module, args, hvd_send_async);
}

static PyObject *py_recv(PyObject *module, PyObject *args)
{
    return submission_transfer(module, args, hvd_recv_async);
}

/* --- registered memory --- */

static PyObject *py_register_buffer(PyObject *module, PyObject *args)
{
    return submission_transfer(module, args, hvd_register_async);
}

static PyObject *py_deregister_buffer(PyObject *module, PyObject *args)
{
    struct submission s = {.module = module};
    unsigned long long data;
    int process_set, status;
    hvd_handle handle = 0;

    if (!PyArg_ParseTuple(args, "O!OKi:deregister_buffer", &PyDict_Type, &s.pending,
                          &s.entry, &data, &process_set))
        return NULL;
    status = hvd_deregister_async((void *)(uintptr_t)data, process_set, &handle);
    return submission_finish(&s, status, handle);
}

/* --- results in the runtime's memory, for result() or take(); with room_bytes, in that
 *     many bytes at the tensor's output --- */

struct room {
    void *at;
    unsigned long long size_bytes;
};

/* A result of another size, because the ranks' tensors differ, does not fit. */
static void *room_give(void *arg, int ndim, const int64_t *shape, size_t size_bytes)
{
    struct room *room = arg;

    (void)ndim;
    (void)shape;
    if (size_bytes != room->size_bytes)
        return NULL;
    return size_bytes > 0 ? room->at : room; /* no byte is written to either */
}

static void room_done(void *arg, int status, const char *error)
{
    (void)status;
    (void)error;
    free(arg);
}

/* *ret: NULL where the runtime allocates. 0, or -1 with an exception. */
static int room_make(struct submission *s, long long room_bytes, struct room **ret)
{
    *ret = NULL;
    if (room_bytes < 0)
        return 0;
    *ret = malloc(sizeof(**ret)); /* freed on a thread without Python */
    if (!*ret) {
        (void)PyErr_NoMemory();
        return -1;
    }
    **ret = (struct room){s->t.output, (unsigned long long)room_bytes};
    s->t.done = room_done;
    s->t.done_arg = *ret;
    return 0;
}

static PyObject *finish_room(const struct submission *s,
                             int status,
                             hvd_handle handle,
                             struct room *room)
{
    if (status != HVD_OK)
        free(room); /* done is not called */
    return submission_finish(s, status, handle);
}

static PyObject *py_allgather(PyObject *module, PyObject *args)
{
    struct submission s = {.module = module};
    PyObject *tensor;
    int process_set, status;
    hvd_handle handle = 0;
    long long room_bytes = -1;
    struct room *room;

    if (!PyArg_ParseTuple(args, "O!OO!i|L:allgather", &PyDict_Type, &s.pending,
                          &s.entry, &PyTuple_Type, &tensor, &process_set, &room_bytes)
        || tensor_from(&s, tensor) || room_make(&s, room_bytes, &room))
        return NULL;
    status =
        hvd_allgather_async(&s.t, room ? room_give : NULL, room, process_set, &handle);
    return finish_room(&s, status, handle, room);
}

static PyObject *py_gather(PyObject *module, PyObject *args)
{
    struct submission s = {.module = module};
    PyObject *tensor;
    int root_rank, process_set, status;
    hvd_handle handle = 0;
    long long room_bytes = -1;
    struct room *room;

    if (!PyArg_ParseTuple(args, "O!OO!ii|L:gather", &PyDict_Type, &s.pending, &s.entry,
                          &PyTuple_Type, &tensor, &root_rank, &process_set, &room_bytes)
        || tensor_from(&s, tensor) || room_make(&s, room_bytes, &room))
        return NULL;
    status = hvd_gather_async(&s.t, root_rank, room ? room_give : NULL, room,
                              process_set, &handle);
    return finish_room(&s, status, handle, room);
}

static PyObject *py_reducescatter(PyObject *module, PyObject *args)
{
    struct submission s = {.module = module};
    PyObject *tensor;
    int op, process_set, status;
    double prescale, postscale;
    hvd_handle handle = 0;
    long long room_bytes = -1;
    struct room *room;

    if (!PyArg_ParseTuple(args, "O!OO!iddi|L:reducescatter", &PyDict_Type, &s.pending,
                          &s.entry, &PyTuple_Type, &tensor, &op, &prescale, &postscale,
                          &process_set, &room_bytes)
        || tensor_from(&s, tensor) || room_make(&s, room_bytes, &room))
        return NULL;
    status =
        hvd_reducescatter_async(&s.t, op, prescale, postscale, room ? room_give : NULL,
                                room, process_set, &handle);
    return finish_room(&s, status, handle, room);
}

static PyObject *py_alltoall(PyObject *module, PyObject *args)
{
    struct submission s = {.module = module};
    PyObject *tensor, *splits;
    int64_t *rows = NULL;
    int n_splits = 0, process_set, status;
    hvd_handle handle = 0;
    long long room_bytes = -1;
    struct room *room;

    if (!PyArg_ParseTuple(args, "O!OO!Oi|L:alltoall", &PyDict_Type, &s.pending,
                          &s.entry, &PyTuple_Type, &tensor, &splits, &process_set,
                          &room_bytes)
        || tensor_from(&s, tensor))
        return NULL;
    if (splits != Py_None) {
        if (!PyTuple_Check(splits) || PyTuple_Size(splits) > INT32_MAX) {
            PyErr_SetString(PyExc_TypeError, "splits must be a tuple of integers");
            return NULL;
        }
        rows = int64s_from(splits);
        if (!rows)
            return NULL;
        n_splits = (int)PyTuple_Size(splits);
    }
    if (room_make(&s, room_bytes, &room)) {
        PyMem_Free(rows);
        return NULL;
    }
    status = hvd_alltoall_async(&s.t, rows, n_splits, room ? room_give : NULL, room,
                                process_set, &handle);
    PyMem_Free(rows);
    return finish_room(&s, status, handle, room);
}

/* --- without data --- */

static PyObject *py_barrier(PyObject *module, PyObject *args)
{
    struct submission s = {.module = module,
                           .t = {.size_bytes = sizeof(s.t), .device = -1}};
    int process_set, status;
    hvd_handle handle = 0;

    if (!PyArg_ParseTuple(args, "O!Osi:barrier", &PyDict_Type, &s.pending, &s.entry,
                          &s.t.name, &process_set))
        return NULL;
    status = hvd_barrier_async(&s.t, process_set, &handle);
    return submission_finish(&s, status, handle);
}

static PyObject *py_probe(PyObject *module, PyObject *args)
{
    struct submission s = {.module = module,
                           .t = {.size_bytes = sizeof(s.t), .device = -1}};
    int status;
    hvd_handle handle = 0;

    if (!PyArg_ParseTuple(args, "O!Os:probe", &PyDict_Type, &s.pending, &s.entry,
                          &s.t.name))
        return NULL;
    status = hvd_probe_async(&s.t, &handle);
    return submission_finish(&s, status, handle);
}

static PyObject *py_join_ranks(PyObject *module, PyObject *args)
{
    struct submission s = {.module = module,
                           .t = {.size_bytes = sizeof(s.t), .device = -1}};
    int status;
    hvd_handle handle = 0;

    if (!PyArg_ParseTuple(args, "O!Osi:join_ranks", &PyDict_Type, &s.pending, &s.entry,
                          &s.t.name, &s.t.device))
        return NULL;
    status = hvd_join_async(&s.t, &handle);
    return submission_finish(&s, status, handle);
}

/* --- held submissions --- */

/* None of them has started; the current exception stays. */
static void
release_held(PyObject *pending, PyObject *numbers, const hvd_handle *handles)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    for (Py_ssize_t i = 0; i < PyTuple_Size(numbers); i++) {
        (void)hvd_release(handles[i]);
        if (PyDict_DelItem(pending, PyTuple_GetItem(numbers, i)))
            PyErr_Clear();
    }
    PyErr_Restore(type, value, traceback);
}

static PyObject *py_submit_held(PyObject *module, PyObject *args)
{
    PyObject *pending, *numbers;
    hvd_handle *handles;
    int status;

    if (!PyArg_ParseTuple(args, "O!O!:submit_held", &PyDict_Type, &pending,
                          &PyTuple_Type, &numbers))
        return NULL;
    handles = int64s_from(numbers);
    if (!handles)
        return NULL;
    status = hvd_submit_held(handles, (int)PyTuple_Size(numbers));
    if (status != HVD_OK) {
        (void)raise_status(module, status, 1);
        release_held(pending, numbers, handles);
    }
    PyMem_Free(handles);
    if (status != HVD_OK)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"allreduce", py_allreduce, METH_VARARGS,
     "allreduce(pending, entry, tensor, op, prescale, postscale, process_set[, "
     "compression])"},
    {"reduce", py_reduce, METH_VARARGS,
     "reduce(pending, entry, tensor, op, prescale, postscale, root_rank, process_set)"},
    {"broadcast", py_broadcast, METH_VARARGS,
     "broadcast(pending, entry, tensor, root_rank, process_set)"},
    {"send", py_send, METH_VARARGS, "send(pending, entry, tensor, dst_rank)"},
    {"recv", py_recv, METH_VARARGS, "recv(pending, entry, tensor, src_rank)"},
    {"allgather", py_allgather, METH_VARARGS,
     "allgather(pending, entry, tensor, process_set[, room_bytes])"},
    {"gather", py_gather, METH_VARARGS,
     "gather(pending, entry, tensor, root_rank, process_set[, room_bytes])"},
    {"reducescatter", py_reducescatter, METH_VARARGS,
     "reducescatter(pending, entry, tensor, op, prescale, postscale, process_set[, "
     "room_bytes])"},
    {"alltoall", py_alltoall, METH_VARARGS,
     "alltoall(pending, entry, tensor, splits or None, process_set[, room_bytes])"},
    {"register_buffer", py_register_buffer, METH_VARARGS,
     "register_buffer(pending, entry, tensor, process_set)"},
    {"deregister_buffer", py_deregister_buffer, METH_VARARGS,
     "deregister_buffer(pending, entry, address, process_set)"},
    {"submit_held", py_submit_held, METH_VARARGS,
     "submit_held(pending, handles): all of them, or none, which are forgotten then"},
    {"barrier", py_barrier, METH_VARARGS, "barrier(pending, entry, name, process_set)"},
    {"probe", py_probe, METH_VARARGS, "probe(pending, entry, name)"},
    {"join_ranks", py_join_ranks, METH_VARARGS,
     "join_ranks(pending, entry, name, device)"},
    {NULL, NULL, 0, NULL},
};

int submit_add_to(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
