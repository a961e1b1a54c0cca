/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the extension share: its state, exceptions, tuples of ints.
 *
 * Statuses to exceptions: HVD_NOT_INITIALIZED and, when submitting,
 * HVD_INVALID_ARGUMENT are ValueError (as Horovod's); HVD_NO_MEMORY is MemoryError;
 * HVD_UNSUPPORTED is NotImplementedError; everything else is HorovodInternalError. */
#include "runtime/python/ext/module.h"

#include <string.h>

struct state *state_of(PyObject *module)
{
    return PyModule_GetState(module);
}

/* The text may contain bytes that are not UTF-8: half a character where a long name was
 * cut, or bytes of the environment. The exception's type must not depend on it. */
static void set_exception(PyObject *type, const char *text)
{
    PyObject *message = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");

    if (!message)
        return; /* with MemoryError */
    PyErr_SetObject(type, message);
    Py_DECREF(message);
}

PyObject *raise_text(PyObject *module, int status, int is_submit, const char *text)
{
    PyObject *type = state_of(module)->internal_error;

    if (status == HVD_NO_MEMORY)
        type = PyExc_MemoryError;
    else if (status == HVD_UNSUPPORTED)
        type = PyExc_NotImplementedError;
    else if (status == HVD_NOT_INITIALIZED
             || (status == HVD_INVALID_ARGUMENT && is_submit))
        type = PyExc_ValueError;
    if (!text || !text[0])
        PyErr_Format(type, "libhvd: status %d without an error message", status);
    else
        set_exception(type, text);
    return NULL;
}

PyObject *raise_status(PyObject *module, int status, int is_submit)
{
    return raise_text(module, status, is_submit, hvd_last_error());
}

PyObject *tuple_of_int64(const int64_t *values, Py_ssize_t n)
{
    PyObject *tuple = PyTuple_New(n);

    for (Py_ssize_t i = 0; tuple && i < n; i++) {
        PyObject *value = PyLong_FromLongLong(values[i]);

        if (!value || PyTuple_SetItem(tuple, i, value)) /* steals the reference */
            Py_CLEAR(tuple);
    }
    return tuple;
}

int64_t *int64s_from(PyObject *tuple)
{
    Py_ssize_t n = PyTuple_Size(tuple);
    int64_t *values = PyMem_Malloc(((size_t)n + 1) * sizeof(*values));

    if (!values) {
        (void)PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        values[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        if (values[i] == -1 && PyErr_Occurred()) {
            PyMem_Free(values);
            return NULL;
        }
    }
    return values;
}
