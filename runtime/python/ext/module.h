/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the Python extension share: its state, and how failures of the
 * runtime become Python exceptions. Include it first, as Python.h requires. All
 * functions need the interpreter's lock (GIL). */
#ifndef RUNTIME_PYTHON_EXT_MODULE_H
#define RUNTIME_PYTHON_EXT_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "hvd.h"

/* Waits return to Python this often, to let signal handlers run. */
#define WAIT_SLICE_MS 100

struct start;

struct state {
    PyObject *internal_error; /* _hvd.exceptions.HorovodInternalError */
    struct start *start; /* the last meeting that start() began, or NULL; the GIL */
};

struct state *state_of(PyObject *module);

/* Both set the exception of a failed status and return NULL. is_submit: a bad argument
 * is the caller's ValueError, and not the operation's HorovodInternalError. */
PyObject *raise_text(PyObject *module, int status, int is_submit, const char *text);
/* With this thread's hvd_last_error(). */
PyObject *raise_status(PyObject *module, int status, int is_submit);

struct waiting { /* the operations to wait for; each function uses some members */
    const hvd_handle *handles;
    int n;
    void *stream;
};

/* Calls once(), without the GIL, until it returns other than HVD_TIMEOUT. Returns None,
 * or NULL with an exception: a signal handler's or TimeoutError (the operations
 * continue), or that of a failed status. timeout_ms < 0: no limit. */
PyObject *wait_in_slices(PyObject *module,
                         int (*once)(const struct waiting *w, int64_t slice_ms),
                         const struct waiting *w,
                         long long timeout_ms);

/* A new tuple of ints; NULL with an exception. */
PyObject *tuple_of_int64(const int64_t *values, Py_ssize_t n);

/* From a tuple of ints into new memory (PyMem_Free); NULL with an exception. */
int64_t *int64s_from(PyObject *tuple);

/* The functions of each file; 0, or -1 with an exception. */
int life_add_to(PyObject *module);
int submit_add_to(PyObject *module);
int ending_add_to(PyObject *module);
int device_add_to(PyObject *module);
int sets_add_to(PyObject *module);
int progress_add_to(PyObject *module);
int replica_add_to(PyObject *module);
int elastic_add_to(PyObject *module);

#endif
