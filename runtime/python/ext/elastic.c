/* SPDX-License-Identifier: Apache-2.0 */
/* elastic.c: functions of _hvd._native for elastic jobs. Called by _hvd/elastic.py. */
#include "runtime/python/ext/module.h"

static PyObject *py_elastic_take_change(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyLong_FromLong(hvd_elastic_take_change());
}

static PyObject *py_elastic_has_new(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyBool_FromLong(hvd_elastic_has_new());
}

static PyObject *py_elastic_is_over(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyBool_FromLong(hvd_elastic_is_over());
}

static PyMethodDef methods[] = {
    {"elastic_take_change", py_elastic_take_change, METH_NOARGS,
     "bits of HostUpdateResult that the launcher has announced since the last call"},
    {"elastic_has_new", py_elastic_has_new, METH_NOARGS,
     "whether a rank of this world is in its first one"},
    {"elastic_is_over", py_elastic_is_over, METH_NOARGS,
     "whether this world of an elastic job has ended"},
    {NULL, NULL, 0, NULL},
};

int elastic_add_to(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
