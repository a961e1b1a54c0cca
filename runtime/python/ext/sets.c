/* SPDX-License-Identifier: Apache-2.0 */
/* sets.c: functions of _hvd._native for process sets. Creating and removing one waits
 * for all ranks of the world and cannot be interrupted; _hvd/process_sets.py runs both
 * in a thread, so that Ctrl-C works. Queries return at once. */
#include "runtime/python/ext/module.h"

#include <limits.h>

static PyObject *set_add(PyObject *module,
                         PyObject *args,
                         int (*function)(const int *ranks, int n, int *ret_id))
{
    PyObject *tuple;
    Py_ssize_t n;
    int *ranks, id = 0, status;

    if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &tuple))
        return NULL;
    n = PyTuple_Size(tuple);
    if (n > INT_MAX || !(ranks = PyMem_Malloc(((size_t)n + 1) * sizeof(*ranks))))
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) {
        long rank = PyLong_AsLong(PyTuple_GetItem(tuple, i));

        if (rank == -1 && PyErr_Occurred()) {
            PyMem_Free(ranks);
            return NULL;
        }
        ranks[i] = rank < 0 || rank > INT_MAX ? -1 : (int)rank;
    }
    Py_BEGIN_ALLOW_THREADS status = function(ranks, (int)n, &id);
    Py_END_ALLOW_THREADS PyMem_Free(ranks);
    if (status != HVD_OK)
        return raise_status(module, status, 1);
    return PyLong_FromLong(id);
}

static PyObject *py_set_add(PyObject *module, PyObject *args)
{
    return set_add(module, args, hvd_process_set_add);
}

static PyObject *py_set_meet(PyObject *module, PyObject *args)
{
    return set_add(module, args, hvd_process_set_meet);
}

static PyObject *py_set_remove(PyObject *module, PyObject *args)
{
    int id, status;

    if (!PyArg_ParseTuple(args, "i:set_remove", &id))
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = hvd_process_set_remove(id);
    Py_END_ALLOW_THREADS if (status != HVD_OK) return raise_status(module, status, 1);
    Py_RETURN_NONE;
}

/* Numbers of unknown count: fill(arg, room, n) returns how many there are, or fails. */
static PyObject *
ints_of(PyObject *module, int (*fill)(int arg, int *ret, int n), int arg)
{
    int *values = NULL, room = 0, n = fill(arg, NULL, 0);
    PyObject *tuple;

    while (n > room) { /* another thread may have added one */
        PyMem_Free(values);
        room = n;
        values = PyMem_Malloc((size_t)room * sizeof(*values));
        if (!values)
            return PyErr_NoMemory();
        n = fill(arg, values, room);
    }
    if (n < 0) {
        PyMem_Free(values);
        return raise_status(module, n, 1);
    }
    tuple = PyTuple_New(n);
    for (int i = 0; tuple && i < n; i++) {
        PyObject *value = PyLong_FromLong(values[i]);

        if (!value || PyTuple_SetItem(tuple, i, value))
            Py_CLEAR(tuple);
    }
    PyMem_Free(values);
    return tuple;
}

static int fill_ids(int unused, int *ret, int n)
{
    (void)unused;
    return hvd_process_set_ids(ret, n);
}

static PyObject *py_set_ids(PyObject *module, PyObject *unused)
{
    (void)unused;
    return ints_of(module, fill_ids, 0);
}

static PyObject *py_set_ranks(PyObject *module, PyObject *args)
{
    int id;

    if (!PyArg_ParseTuple(args, "i:set_ranks", &id))
        return NULL;
    return ints_of(module, hvd_process_set_ranks, id);
}

static PyObject *py_set_size(PyObject *module, PyObject *args)
{
    int id, n;

    if (!PyArg_ParseTuple(args, "i:set_size", &id))
        return NULL;
    n = hvd_process_set_size(id);
    return n < 0 ? raise_status(module, n, 1) : PyLong_FromLong(n);
}

static PyObject *py_set_rank(PyObject *module, PyObject *args)
{
    int id, rank;

    if (!PyArg_ParseTuple(args, "i:set_rank", &id))
        return NULL;
    rank = hvd_process_set_rank(id);
    if (rank >= 0)
        return PyLong_FromLong(rank);
    if (hvd_last_error()[0])
        return raise_status(module, rank, 1);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"set_add", py_set_add, METH_VARARGS, "set_add(ranks) -> id; all ranks call it"},
    {"set_meet", py_set_meet, METH_VARARGS,
     "set_meet(ranks) -> id; these ranks call it"},
    {"set_remove", py_set_remove, METH_VARARGS, "set_remove(id); all ranks call it"},
    {"set_ids", py_set_ids, METH_NOARGS,
     "set_ids() -> ids of the sets of set_add, 0 included"},
    {"set_ranks", py_set_ranks, METH_VARARGS, "set_ranks(id) -> its global ranks"},
    {"set_size", py_set_size, METH_VARARGS, "set_size(id)"},
    {"set_rank", py_set_rank, METH_VARARGS, "set_rank(id) -> place in it, or None"},
    {NULL, NULL, 0, NULL},
};

int sets_add_to(PyObject *module)
{
    int rc = PyModule_AddFunctions(module, methods);

    return rc < 0 ? rc
                  : PyModule_AddIntConstant(module, "SET_NUMBERS",
                                            HVD_PROCESS_SET_NUMBERS);
}
