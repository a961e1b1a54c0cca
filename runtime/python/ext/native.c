/* SPDX-License-Identifier: Apache-2.0 */
/* native.c: the Python extension _hvd._native, a thin skin over libhvd.so (hvd.h).
 *
 * Design. Framework code in Python passes addresses, shapes and dtypes as integers (a
 * tensor's data_ptr()), so one build serves every PyTorch and every CPython from 3.8
 * (limited API, abi3). No logic lives here: arguments are converted, one hvd_* function
 * is called, its status becomes a Python exception with the runtime's own sentence.
 *
 * METH_VARARGS, not METH_FASTCALL: the fast calling convention entered the limited API
 * only with Python 3.10, and we promise 3.8. The price is one small tuple per call
 * (about 30 ns).
 *
 * Invariants
 *  - The GIL is released wherever the runtime may block: join, shutdown, wait, copy.
 * join() and wait() sleep in slices of WAIT_SLICE_MS and look for signals between them,
 * so that Ctrl-C works; hvd_init, which cannot be sliced, runs in a thread (start.c).
 *  - Tensors behind addresses are kept alive in the caller's dict (_hvd/handles.py)
 * until its handle ended; a submission enters them there itself.
 *  - All state is in the module object; there are no globals. libhvd.so is found beside
 * this file
 *    ($ORIGIN) and is the same instance that libhvd_tf.so uses.
 *
 * Statuses to exceptions: HVD_NOT_INITIALIZED and, when submitting,
 * HVD_INVALID_ARGUMENT are ValueError (as Horovod's); HVD_NO_MEMORY is MemoryError;
 * everything else is HorovodInternalError. Called by _hvd/basics.py, _hvd/handles.py
 * and _hvd/torch. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "hvd.h"
#include "runtime/python/ext/start.h"

#define WAIT_SLICE_MS 100

struct state {
    PyObject *internal_error; /* _hvd.exceptions.HorovodInternalError */
    struct start *start; /* the last meeting that start() began, or NULL; the GIL */
};

static struct state *state_of(PyObject *module)
{
    return PyModule_GetState(module);
}

static PyObject *
raise_text(PyObject *module, int status, int is_submit, const char *text)
{
    PyObject *type = state_of(module)->internal_error;

    if (status == HVD_NO_MEMORY)
        type = PyExc_MemoryError;
    else if (status == HVD_NOT_INITIALIZED
             || (status == HVD_INVALID_ARGUMENT && is_submit))
        type = PyExc_ValueError;
    if (!text || !text[0])
        PyErr_Format(type, "libhvd: status %d without a sentence", status);
    else
        PyErr_SetString(type, text);
    return NULL;
}

static PyObject *raise_status(PyObject *module, int status, int is_submit)
{
    return raise_text(module, status, is_submit, hvd_last_error());
}

/* --- life and place
 * ------------------------------------------------------------------------- */

/* Forgets the meeting that ended. -1 with an exception where it never will. */
static int drop_last_start(struct state *state)
{
    struct start *s = state->start;
    int is_forked = s && start_is_forked(s);

    if (!s)
        return 0;
    if (is_forked && start_wait(s, 0) == START_WAITING) {
        PyErr_SetString(PyExc_ValueError,
                        "this process was forked while hvd.init() waited for the other "
                        "ranks; fork before hvd.init()");
        return -1;
    }
    while (!is_forked && start_wait(s, 0) != START_OVER) { /* it is being undone */
        Py_BEGIN_ALLOW_THREADS(void) start_wait(s, WAIT_SLICE_MS);
        Py_END_ALLOW_THREADS
    }
    state->start = NULL;
    start_unref(s);
    return 0;
}

/* start(start_timeout_ms): begins to meet the other ranks and does not wait for them.
 * True when a new world is under way, False when there is one or is one already under
 * way. One caller at a time (_hvd/basics.py). */
static PyObject *py_start(PyObject *module, PyObject *args)
{
    struct state *state = state_of(module);
    struct start *s = state->start;
    unsigned long long start_timeout_ms;

    if (!PyArg_ParseTuple(args, "K:start", &start_timeout_ms))
        return NULL;
    if (s && !start_is_forked(s) && start_resume(s))
        Py_RETURN_TRUE;
    if (s && !start_is_forked(s) && start_wait(s, 0) == START_WAITING)
        Py_RETURN_FALSE;
    if (drop_last_start(state))
        return NULL;
    if (hvd_is_initialized())
        Py_RETURN_FALSE;
    if (start_new(start_timeout_ms, &state->start))
        return PyErr_NoMemory();
    Py_RETURN_TRUE;
}

/* join(): waits until the world that start() began has formed. A signal handler's
 * exception passes, and the meeting goes on: see cancel(). */
static PyObject *py_join(PyObject *module, PyObject *unused)
{
    struct start *s = state_of(module)->start;
    enum start_state state = START_WAITING;
    PyObject *ret = NULL;

    (void)unused;
    if (!s)
        Py_RETURN_NONE;
    s = start_ref(s);
    while (state != START_OVER && !start_is_cancelled(s)) {
        Py_BEGIN_ALLOW_THREADS state = start_wait(s, WAIT_SLICE_MS);
        Py_END_ALLOW_THREADS if (state != START_OVER && PyErr_CheckSignals()) goto out;
    }
    if (start_is_cancelled(s))
        ret = raise_text(
            module, HVD_ABORTED, 1,
            "hvd.shutdown() was called while hvd.init() waited for the other ranks");
    else if (start_status(s) != HVD_OK)
        ret = raise_text(module, start_status(s), 1, start_text(s));
    else
        ret = Py_BuildValue("");
out:
    start_unref(s);
    return ret;
}

/* cancel(): nobody waits for the world any more that start() began, if it has not yet
 * formed. True when that was so. */
static PyObject *py_cancel(PyObject *module, PyObject *unused)
{
    struct start *s = state_of(module)->start;

    (void)unused;
    return PyBool_FromLong(s && !start_is_forked(s) && start_cancel(s));
}

/* Never waits for a meeting to end: a signal handler may be called inside join(). */
static PyObject *py_shutdown(PyObject *module, PyObject *unused)
{
    struct start *s = state_of(module)->start;
    int status;

    (void)unused;
    if (s && !start_is_forked(s) && start_cancel(s))
        Py_RETURN_NONE;
    Py_BEGIN_ALLOW_THREADS status = hvd_shutdown();
    Py_END_ALLOW_THREADS if (status != HVD_OK) return raise_status(module, status, 0);
    Py_RETURN_NONE;
}

static PyObject *py_is_initialized(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyBool_FromLong(hvd_is_initialized());
}

static PyObject *place_value(PyObject *module, int value)
{
    if (value < 0)
        return raise_status(module, value, 0);
    return PyLong_FromLong(value);
}

#define PLACE(NAME)                                                                    \
    static PyObject *py_##NAME(PyObject *module, PyObject *unused)                     \
    {                                                                                  \
        (void)unused;                                                                  \
        return place_value(module, hvd_##NAME());                                      \
    }
PLACE(rank)
PLACE(size)
PLACE(local_rank)
PLACE(local_size)
PLACE(cross_rank)
PLACE(cross_size)
PLACE(is_homogeneous)

static PyObject *py_timeline_start(PyObject *module, PyObject *args)
{
    PyObject *path;
    int marks_cycles, status;

    if (!PyArg_ParseTuple(args, "O&p:timeline_start", PyUnicode_FSConverter, &path,
                          &marks_cycles))
        return NULL;
    Py_BEGIN_ALLOW_THREADS status =
        hvd_timeline_start(PyBytes_AsString(path), marks_cycles);
    Py_END_ALLOW_THREADS Py_DECREF(path);
    if (status != HVD_OK)
        return raise_status(module, status, 1);
    Py_RETURN_NONE;
}

static PyObject *py_timeline_stop(PyObject *module, PyObject *unused)
{
    int status;

    (void)unused;
    Py_BEGIN_ALLOW_THREADS status = hvd_timeline_stop();
    Py_END_ALLOW_THREADS if (status != HVD_OK) return raise_status(module, status, 1);
    Py_RETURN_NONE;
}

static PyObject *py_describe(PyObject *module, PyObject *unused)
{
    char text[4096];
    size_t length;

    (void)module;
    (void)unused;
    length = hvd_describe(text, sizeof(text));
    if (length >= sizeof(text))
        length = sizeof(text) - 1;
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace");
}

static PyObject *py_version(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyUnicode_FromString(hvd_version());
}

/* --- submitting
 * ------------------------------------------------------------------------------ */

/* Fills shape from a tuple of ints (torch.Size is one) and sets *ret_ndim; 0 or -1 with
 * an exception. */
static int shape_from(PyObject *tuple, int64_t *shape, int *ret_ndim)
{
    Py_ssize_t n;

    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "shape must be a tuple of integers");
        return -1;
    }
    n = PyTuple_Size(tuple);
    if (n > HVD_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError,
                     "tensor has %zd dimensions; at most %d are supported", n,
                     HVD_MAX_DIMS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        shape[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        if (shape[i] == -1 && PyErr_Occurred())
            return -1;
    }
    *ret_ndim = (int)n;
    return 0;
}

/* An address that came as a Python integer. */
static void *address_of(unsigned long long value)
{
    return (void *)(uintptr_t)value;
}

/* Where what an operation needs is kept: pending[handle] = entry, made here because no
 * signal handler of Python can come between. */
struct keeper {
    PyObject *pending, *entry;
};

static PyObject *
handle_or_raise(PyObject *module, int status, hvd_handle handle, const struct keeper *k)
{
    PyObject *number;

    if (status != HVD_OK)
        return raise_status(module, status, 1);
    number = PyLong_FromLongLong(handle);
    if (number && PyDict_SetItem(k->pending, number, k->entry) == 0)
        return number;
    Py_INCREF(k->entry); /* the operation runs: rather keep its memory for ever */
    Py_XDECREF(number);
    return NULL;
}

static PyObject *py_allreduce(PyObject *module, PyObject *args)
{
    int64_t shape[HVD_MAX_DIMS];
    struct hvd_tensor t = {.size_bytes = sizeof(t), .shape = shape, .device = -1};
    unsigned long long data, output;
    PyObject *shape_tuple;
    int op, process_set, status;
    double prescale, postscale;
    hvd_handle handle = 0;
    struct keeper k;

    if (!PyArg_ParseTuple(args, "O!OsKKiOiddi:allreduce", &PyDict_Type, &k.pending,
                          &k.entry, &t.name, &data, &output, &t.dtype, &shape_tuple,
                          &op, &prescale, &postscale, &process_set))
        return NULL;
    if (shape_from(shape_tuple, shape, &t.ndim))
        return NULL;
    t.data = address_of(data);
    t.output = address_of(output);
    status = hvd_allreduce_async(&t, op, prescale, postscale, process_set, &handle);
    return handle_or_raise(module, status, handle, &k);
}

static PyObject *py_allgather(PyObject *module, PyObject *args)
{
    int64_t shape[HVD_MAX_DIMS];
    struct hvd_tensor t = {.size_bytes = sizeof(t), .shape = shape, .device = -1};
    unsigned long long data;
    PyObject *shape_tuple;
    int process_set, status;
    hvd_handle handle = 0;
    struct keeper k;

    if (!PyArg_ParseTuple(args, "O!OsKiOi:allgather", &PyDict_Type, &k.pending,
                          &k.entry, &t.name, &data, &t.dtype, &shape_tuple,
                          &process_set))
        return NULL;
    if (shape_from(shape_tuple, shape, &t.ndim))
        return NULL;
    t.data = address_of(data);
    status = hvd_allgather_async(&t, NULL, NULL, process_set, &handle);
    return handle_or_raise(module, status, handle, &k);
}

static PyObject *py_broadcast(PyObject *module, PyObject *args)
{
    int64_t shape[HVD_MAX_DIMS];
    struct hvd_tensor t = {.size_bytes = sizeof(t), .shape = shape, .device = -1};
    unsigned long long data, output;
    PyObject *shape_tuple;
    int root_rank, process_set, status;
    hvd_handle handle = 0;
    struct keeper k;

    if (!PyArg_ParseTuple(args, "O!OsKKiOii:broadcast", &PyDict_Type, &k.pending,
                          &k.entry, &t.name, &data, &output, &t.dtype, &shape_tuple,
                          &root_rank, &process_set))
        return NULL;
    if (shape_from(shape_tuple, shape, &t.ndim))
        return NULL;
    t.data = address_of(data);
    t.output = address_of(output);
    status = hvd_broadcast_async(&t, root_rank, process_set, &handle);
    return handle_or_raise(module, status, handle, &k);
}

static PyObject *py_barrier(PyObject *module, PyObject *args)
{
    struct hvd_tensor t = {.size_bytes = sizeof(t), .device = -1};
    int process_set, status;
    hvd_handle handle = 0;
    struct keeper k;

    if (!PyArg_ParseTuple(args, "O!Osi:barrier", &PyDict_Type, &k.pending, &k.entry,
                          &t.name, &process_set))
        return NULL;
    status = hvd_barrier_async(&t, process_set, &handle);
    return handle_or_raise(module, status, handle, &k);
}

/* --- ending
 * ---------------------------------------------------------------------------------- */

static PyObject *py_poll(PyObject *module, PyObject *args)
{
    long long handle;

    (void)module;
    if (!PyArg_ParseTuple(args, "L:poll", &handle))
        return NULL;
    return PyBool_FromLong(hvd_poll(handle) != HVD_IN_PROGRESS);
}

/* wait(handle): returns None at the end of the operation or raises; a signal handler's
 * exception (KeyboardInterrupt) passes and the operation goes on. */
static PyObject *py_wait(PyObject *module, PyObject *args)
{
    long long handle;
    int status;

    if (!PyArg_ParseTuple(args, "L:wait", &handle))
        return NULL;
    for (;;) {
        Py_BEGIN_ALLOW_THREADS status = hvd_wait(handle, WAIT_SLICE_MS);
        Py_END_ALLOW_THREADS if (status != HVD_TIMEOUT) break;
        if (PyErr_CheckSignals())
            return NULL;
    }
    if (status != HVD_OK)
        return raise_status(module, status, 0);
    Py_RETURN_NONE;
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
    tuple = PyTuple_New(ndim);
    if (!tuple)
        return NULL;
    for (int i = 0; i < ndim; i++) {
        PyObject *dim = PyLong_FromLongLong(shape[i]);

        if (!dim || PyTuple_SetItem(tuple, i, dim)) {
            Py_DECREF(tuple);
            return NULL;
        }
    }
    return Py_BuildValue("KN", (unsigned long long)(uintptr_t)data, tuple);
}

static PyObject *py_release(PyObject *module, PyObject *args)
{
    long long handle;

    (void)module;
    if (!PyArg_ParseTuple(args, "L:release", &handle))
        return NULL;
    (void)hvd_release(handle); /* an unknown handle is as good as a released one */
    Py_RETURN_NONE;
}

/* --- memory
 * ---------------------------------------------------------------------------------- */

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
        Py_BEGIN_ALLOW_THREADS memcpy(address_of(to), address_of(from), (size_t)n);
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

/* --- the module
 * ------------------------------------------------------------------------------ */

/* faulthandler writes the stacks of all Python threads on this signal: from C, without
 * the interpreter's lock, which the thread that hangs may hold. */
static void on_late(void *arg, const char *tensor)
{
    (void)tensor; /* the runtime has said it */
    (void)kill(getpid(), (int)(intptr_t)arg);
}

static PyObject *py_show_stacks(PyObject *self, PyObject *args)
{
    int sig;

    (void)self;
    if (!PyArg_ParseTuple(args, "i", &sig))
        return NULL;
    hvd_on_late(on_late, (void *)(intptr_t)sig);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"show_stacks", py_show_stacks, METH_VARARGS,
     "show_stacks(signal): raised when other ranks wait for this one"},
    {"start", py_start, METH_VARARGS, "start(start_timeout_ms): 0 for the default"},
    {"join", py_join, METH_NOARGS, "waits for what start() began"},
    {"cancel", py_cancel, METH_NOARGS, "nobody waits for what start() began"},
    {"shutdown", py_shutdown, METH_NOARGS, NULL},
    {"is_initialized", py_is_initialized, METH_NOARGS, NULL},
    {"rank", py_rank, METH_NOARGS, NULL},
    {"size", py_size, METH_NOARGS, NULL},
    {"local_rank", py_local_rank, METH_NOARGS, NULL},
    {"local_size", py_local_size, METH_NOARGS, NULL},
    {"cross_rank", py_cross_rank, METH_NOARGS, NULL},
    {"cross_size", py_cross_size, METH_NOARGS, NULL},
    {"is_homogeneous", py_is_homogeneous, METH_NOARGS, NULL},
    {"timeline_start", py_timeline_start, METH_VARARGS,
     "timeline_start(path, mark_cycles)"},
    {"timeline_stop", py_timeline_stop, METH_NOARGS, NULL},
    {"describe", py_describe, METH_NOARGS,
     "one line of JSON about this process' world"},
    {"version", py_version, METH_NOARGS, NULL},
    {"allreduce", py_allreduce, METH_VARARGS,
     "allreduce(pending, entry, name, data, output, dtype, shape, op, prescale, "
     "postscale, "
     "process_set)"},
    {"allgather", py_allgather, METH_VARARGS,
     "allgather(pending, entry, name, data, dtype, shape, process_set)"},
    {"broadcast", py_broadcast, METH_VARARGS,
     "broadcast(pending, entry, name, data, output, dtype, shape, root_rank, "
     "process_set)"},
    {"barrier", py_barrier, METH_VARARGS, "barrier(pending, entry, name, process_set)"},
    {"poll", py_poll, METH_VARARGS, "poll(handle) -> has it ended?"},
    {"wait", py_wait, METH_VARARGS, "wait(handle): until it has ended"},
    {"result", py_result, METH_VARARGS, "result(handle) -> (address, shape)"},
    {"release", py_release, METH_VARARGS, "release(handle)"},
    {"address", py_address, METH_VARARGS, "address(bytearray)"},
    {"copy", py_copy, METH_VARARGS, "copy(to, from, n_bytes)"},
    {NULL, NULL, 0, NULL},
};

static int module_exec(PyObject *module)
{
    PyObject *exceptions = PyImport_ImportModule("_hvd.exceptions");

    if (!exceptions)
        return -1;
    state_of(module)->internal_error =
        PyObject_GetAttrString(exceptions, "HorovodInternalError");
    Py_DECREF(exceptions);
    return state_of(module)->internal_error ? 0 : -1;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    Py_VISIT(state_of(module)->internal_error);
    return 0;
}

static int module_clear(PyObject *module)
{
    Py_CLEAR(state_of(module)->internal_error);
    start_unref(state_of(module)->start);
    state_of(module)->start = NULL;
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_hvd._native",
    .m_doc = "libhvd.so for Python; see ext/native.c",
    .m_size = sizeof(struct state),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__native(void);
PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
