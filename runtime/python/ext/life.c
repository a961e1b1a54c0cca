/* SPDX-License-Identifier: Apache-2.0 */
/* life.c: functions of _hvd._native for this process' life in the world: init and
 * shutdown, ranks and sizes, the timeline, text reports. init() is start() and join(),
 * so that signal handlers run while it waits (start.h). Called by _hvd/basics.py. */
#include "runtime/python/ext/module.h"

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/python/ext/start.h"

/* Releases the meeting if it has ended. -1 with an exception if it can never end (after
 * fork). */
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
    while (!is_forked
           && start_wait(s, 0) != START_OVER) { /* a cancelled meeting is being left */
        Py_BEGIN_ALLOW_THREADS(void) start_wait(s, WAIT_SLICE_MS);
        Py_END_ALLOW_THREADS
    }
    state->start = NULL;
    start_unref(s);
    return 0;
}

/* Process sets from a tuple of tuples of ranks; 0, or -1 with an exception. */
static int sets_from(PyObject *sets, struct start_sets **ret)
{
    Py_ssize_t n = PyTuple_Size(sets), n_ranks = 0, k = 0;
    struct start_sets *s;

    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *ranks = PyTuple_GetItem(sets, i);

        if (!PyTuple_Check(ranks)) {
            PyErr_SetString(PyExc_TypeError, "process sets must be tuples of ranks");
            return -1;
        }
        n_ranks += PyTuple_Size(ranks);
    }
    if (n + n_ranks > INT32_MAX / 2 || !(s = start_sets_new((int)n, (int)n_ranks))) {
        (void)PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *ranks = PyTuple_GetItem(sets, i);

        s->sizes[i] = (int)PyTuple_Size(ranks);
        for (int j = 0; j < s->sizes[i]; j++) {
            long rank = PyLong_AsLong(PyTuple_GetItem(ranks, j));

            if (rank == -1 && PyErr_Occurred()) {
                free(s);
                return -1;
            }
            /* not a rank of any world: the runtime refuses it */
            s->ranks[k++] = rank < 0 || rank > INT32_MAX ? -1 : (int)rank;
        }
    }
    *ret = s;
    return 0;
}

/* A world exists: hvd_init() returns at once whether it is the same one. */
static int world_query(const struct start_sets *sets)
{
    struct hvd_config config = {
        .size_bytes = sizeof(config), .n_ranks = sets->sizes[0], .ranks = sets->ranks};

    return hvd_init(&config);
}

/* start(start_timeout_ms, ranks and sets): the first tuple has the world's ranks, ()
 * for all; each further one those of a process set. Starts to meet the other ranks and
 * does not wait for them. Returns True if a new world is being formed, False if one
 * exists or is being formed already. One caller at a time (_hvd/basics.py). */
static PyObject *py_start(PyObject *module, PyObject *args)
{
    struct state *state = state_of(module);
    struct start *s = state->start;
    unsigned long long start_timeout_ms;
    struct start_sets *sets = NULL;
    PyObject *set_tuple;

    if (!PyArg_ParseTuple(args, "KO!:start", &start_timeout_ms, &PyTuple_Type,
                          &set_tuple))
        return NULL;
    if (sets_from(set_tuple, &sets))
        return NULL;
    if (s && !start_is_forked(s) && start_wait(s, 0) == START_WAITING) {
        int is_same = start_is_of(s, sets), was_cancelled = start_is_cancelled(s);

        free(sets);
        if (!is_same)
            return raise_text(
                module, HVD_INVALID_ARGUMENT, 1,
                "hvd.init() still waits for the ranks of another comm; it "
                "ends by HOROVOD_START_TIMEOUT, then call it again");
        if (was_cancelled)
            (void)start_resume(
                s); /* or it has ended meanwhile: join() returns the result */
        return PyBool_FromLong(was_cancelled);
    }
    if (drop_last_start(state)) {
        free(sets);
        return NULL;
    }
    if (hvd_is_initialized()) {
        int status;

        Py_BEGIN_ALLOW_THREADS status = world_query(sets);
        Py_END_ALLOW_THREADS free(sets);
        if (status == HVD_INVALID_ARGUMENT) /* the text belongs to this thread */
            return raise_status(module, status, 1);
        Py_RETURN_FALSE; /* the next collective reports a broken world */
    }
    if (start_new(start_timeout_ms, sets, &state->start)) {
        free(sets);
        return PyErr_NoMemory();
    }
    Py_RETURN_TRUE;
}

/* join(): waits until the world that start() began has formed. A signal handler's
 * exception is passed on, and the meeting continues: see cancel(). */
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

/* cancel(): abandons the world that start() is forming. True if it had not yet
 * formed. */
static PyObject *py_cancel(PyObject *module, PyObject *unused)
{
    struct start *s = state_of(module)->start;

    (void)unused;
    return PyBool_FromLong(s && !start_is_forked(s) && start_cancel(s));
}

/* Never waits for a meeting to end: a signal handler may call this inside join(). */
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
    const char *text;
    int marks_cycles, status;

    if (!PyArg_ParseTuple(args, "O&p:timeline_start", PyUnicode_FSConverter, &path,
                          &marks_cycles))
        return NULL;
    text = PyBytes_AsString(path);
    Py_BEGIN_ALLOW_THREADS status = hvd_timeline_start(text, marks_cycles);
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
    size_t length = hvd_describe(NULL, 0), size = length + 1;
    char *text = PyMem_Malloc(size); /* some bytes for each rank */
    PyObject *result;

    (void)module;
    (void)unused;
    if (!text)
        return PyErr_NoMemory();
    length = hvd_describe(text, size);
    length = length < size ? length : size - 1; /* another world has formed meanwhile */
    result = PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace");
    PyMem_Free(text);
    return result;
}

/* mac(purpose, address, n_bytes) -> bytes. A large object takes a while, so the GIL is
 * released; the caller keeps the memory alive. */
static PyObject *py_mac(PyObject *module, PyObject *args)
{
    unsigned char mac[HVD_MAC_BYTES];
    unsigned long long address, n;
    const char *purpose;
    int status;

    if (!PyArg_ParseTuple(args, "sKK:mac", &purpose, &address, &n))
        return NULL;
    Py_BEGIN_ALLOW_THREADS status =
        hvd_mac(purpose, (const void *)(uintptr_t)address, (size_t)n, mac);
    Py_END_ALLOW_THREADS if (status != HVD_OK) return raise_status(module, status, 1);
    return PyBytes_FromStringAndSize((const char *)mac, sizeof(mac));
}

/* set_exit_cause(text or None, exit_code): for the goodbye that follows. */
static PyObject *py_set_exit_cause(PyObject *module, PyObject *args)
{
    const char *text;
    int code;

    if (!PyArg_ParseTuple(args, "zi:set_exit_cause", &text, &code))
        return NULL;
    if (hvd_set_exit_cause(text, code) != HVD_OK)
        return raise_status(module, HVD_INVALID_ARGUMENT, 1);
    Py_RETURN_NONE;
}

static PyObject *py_ended_by_other(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyBool_FromLong(hvd_ended_by_other());
}

static PyObject *py_version(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyUnicode_FromString(hvd_version());
}

/* The runtime's counters in Prometheus' text format. */
static PyObject *py_stats_text(PyObject *module, PyObject *unused)
{
    size_t room = 16384, length = 0;

    (void)unused;
    for (;;) {
        char *text = PyMem_Malloc(room);
        int status;
        PyObject *ret;

        if (!text)
            return PyErr_NoMemory();
        status = hvd_stats_text(text, room, &length);
        if (status == HVD_OK && length >= room) { /* the text may have grown since */
            PyMem_Free(text);
            room = length + 1024;
            continue;
        }
        if (status != HVD_OK)
            ret = raise_status(module, status, 1);
        else
            ret = PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace");
        PyMem_Free(text);
        return ret;
    }
}

/* faulthandler writes the stacks of all Python threads on this signal: from C, without
 * the interpreter's lock, which the hanging thread may hold. */
static void on_late(void *arg, const char *tensor)
{
    (void)tensor; /* the runtime has logged it */
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

/* Of the signal for stacks: faulthandler's handler and libhvd's. Set once, before
 * on_stacks is installed. */
static void (*stacks_handlers[2])(int);

/* The second call is the last, so the compiler makes it a jump: libhvd then finds the
 * frame of the signal behind its own (api/stacks.c). */
static void on_stacks(int sig)
{
    stacks_handlers[0](sig);
    stacks_handlers[1](sig);
}

/* faulthandler's own way, chain=True, loses SA_RESTART: system calls of the program
 * would fail with EINTR. */
static PyObject *py_join_stacks(PyObject *self, PyObject *args)
{
    struct sigaction first, second;
    PyObject *add, *done;
    int sig;

    (void)self;
    if (!PyArg_ParseTuple(args, "iO", &sig, &add))
        return NULL;
    if (sigaction(sig, NULL, &first) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    done = PyObject_CallObject(add, NULL);
    Py_XDECREF(done);
    if (!done)
        return NULL;
    if (sigaction(sig, NULL, &second) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    if (first.sa_handler == SIG_DFL || first.sa_handler == SIG_IGN
        || second.sa_handler == on_stacks)
        Py_RETURN_NONE;
    stacks_handlers[0] = second.sa_handler;
    stacks_handlers[1] = first.sa_handler;
    second.sa_handler = on_stacks;
    second.sa_flags |= SA_RESTART;
    if (sigaction(sig, &second, NULL) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"join_stacks", py_join_stacks, METH_VARARGS,
     "join_stacks(signal, add): both the handler that add() sets and the one before"},
    {"show_stacks", py_show_stacks, METH_VARARGS,
     "show_stacks(signal): raised when other ranks wait for this one"},
    {"start", py_start, METH_VARARGS,
     "start(start_timeout_ms, process_sets): 0 for the default, tuples of ranks"},
    {"join", py_join, METH_NOARGS, "waits for the world that start() is forming"},
    {"cancel", py_cancel, METH_NOARGS, "abandons the world that start() is forming"},
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
    {"stats_text", py_stats_text, METH_NOARGS, "counters as Prometheus reads them"},
    {"mac", py_mac, METH_VARARGS,
     "mac(purpose, address, n_bytes) -> bytes, by a key of the job token"},
    {"set_exit_cause", py_set_exit_cause, METH_VARARGS,
     "set_exit_cause(text, exit_code): why this process ends"},
    {"ended_by_other", py_ended_by_other, METH_NOARGS,
     "whether another rank has ended the world"},
    {"version", py_version, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int life_add_to(PyObject *module)
{
    return PyModule_AddIntConstant(module, "EXIT_OTHER_RANK", HVD_EXIT_OTHER_RANK)
           || PyModule_AddFunctions(module, methods);
}
