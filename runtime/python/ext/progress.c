/* SPDX-License-Identifier: Apache-2.0 */
/* hvd_progress for Python. Numbers and names are checked here, because the arguments have
 * other names in Python than the fields in C. */
#include "runtime/python/ext/module.h"

#include <string.h>

/* None: not given. 0, or -1 with an exception that names the argument. */
static int count_from(const char *name, PyObject *value, int64_t *ret)
{
    PyObject *number;

    *ret = -1;
    if (value == Py_None)
        return 0;
    number = PyBool_Check(value) ? NULL : PyNumber_Index(value);
    if (!number) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "%s: %R is not an integer", name, value);
        return -1;
    }
    *ret = PyLong_AsLongLong(number);
    Py_DECREF(number);
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        *ret = -1;
    }
    if (*ret >= 0)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s: %R is not between 0 and 2**63 - 1", name,
                 value);
    return -1;
}

struct metrics {
    struct hvd_metric m[HVD_PROGRESS_METRICS];
    PyObject *names[HVD_PROGRESS_METRICS]; /* bytes, which hold the texts */
    int n;
};

static int metric_add(struct metrics *ms, PyObject *name, PyObject *value)
{
    struct hvd_metric *m = &ms->m[ms->n];
    PyObject *bytes;

    if (!PyUnicode_Check(name)) {
        PyErr_Format(PyExc_TypeError, "metrics: the name %R is not a str", name);
        return -1;
    }
    bytes = PyUnicode_AsUTF8String(name);
    if (!bytes) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "metrics: the name %A is not Unicode", name);
        return -1;
    }
    ms->names[ms->n++] = bytes;
    m->name = PyBytes_AsString(bytes);
    if (strlen(m->name) != (size_t)PyBytes_Size(bytes)) {
        PyErr_Format(PyExc_ValueError, "metrics: the name %R has a NUL", name);
        return -1;
    }
    m->value = PyFloat_AsDouble(value);
    return m->value == -1.0 && PyErr_Occurred() ? -1 : 0;
}

static int metrics_from(PyObject *dict, struct metrics *ms)
{
    PyObject *name, *value;
    Py_ssize_t at = 0;

    if (dict == Py_None)
        return 0;
    if (PyDict_Size(dict) > HVD_PROGRESS_METRICS) {
        PyErr_Format(PyExc_ValueError, "metrics: %zd, at most %d are allowed",
                     PyDict_Size(dict), HVD_PROGRESS_METRICS);
        return -1;
    }
    while (PyDict_Next(dict, &at, &name, &value))
        if (metric_add(ms, name, value))
            return -1;
    return 0;
}

/* progress(step, total, epoch, epochs, samples, metrics): each may be None; metrics: a
 * dict of floats. */
static PyObject *py_progress(PyObject *module, PyObject *args)
{
    struct hvd_progress given = {.size_bytes = sizeof(given)};
    PyObject *step, *total, *epoch, *epochs, *samples, *dict;
    struct metrics ms = {.n = 0};
    int status = HVD_OK, rc;

    if (!PyArg_ParseTuple(args, "OOOOOO:progress", &step, &total, &epoch, &epochs,
                          &samples, &dict))
        return NULL;
    rc = count_from("step", step, &given.step)
         || count_from("total", total, &given.total_steps)
         || count_from("epoch", epoch, &given.epoch)
         || count_from("epochs", epochs, &given.total_epochs)
         || count_from("samples", samples, &given.samples) || metrics_from(dict, &ms);
    if (!rc) {
        given.n_metrics = ms.n;
        given.metrics = ms.m;
        status = hvd_progress(&given);
    }
    for (int i = 0; i < ms.n; i++)
        Py_DECREF(ms.names[i]);
    if (rc)
        return NULL;
    if (status != HVD_OK)
        return raise_status(module, status, 1);
    Py_RETURN_NONE;
}

static PyObject *py_progress_commit(PyObject *module, PyObject *unused)
{
    const struct hvd_progress given = {.size_bytes = sizeof(given),
                                       .step = -1,
                                       .total_steps = -1,
                                       .epoch = -1,
                                       .total_epochs = -1,
                                       .samples = -1,
                                       .is_commit = 1};
    int status = hvd_progress(&given);

    (void)unused;
    if (status != HVD_OK)
        return raise_status(module, status, 1);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"progress", py_progress, METH_VARARGS,
     "progress(step, total, epoch, epochs, samples, metrics)"},
    {"progress_commit", py_progress_commit, METH_NOARGS,
     "the state as it is at the last step was saved"},
    {NULL, NULL, 0, NULL},
};

int progress_add_to(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
