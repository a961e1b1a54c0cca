/* SPDX-License-Identifier: Apache-2.0 */
/* replica.c: functions of _hvd._native that compare the values of ranks: digests and
 * differences of host memory (core/digest.h). They need no world, and may take some
 * milliseconds, so the GIL is released. Called by _hvd/replica.py. */
#include "runtime/python/ext/module.h"

#include <stdint.h>

#include "runtime/core/digest.h"

static PyObject *py_digest(PyObject *module, PyObject *args)
{
    unsigned long long at, n;
    uint64_t digest;

    (void)module;
    if (!PyArg_ParseTuple(args, "KK:digest", &at, &n))
        return NULL;
    Py_BEGIN_ALLOW_THREADS digest = digest_of((const void *)(uintptr_t)at, (size_t)n);
    Py_END_ALLOW_THREADS return PyLong_FromUnsignedLongLong(digest);
}

static PyObject *py_difference(PyObject *module, PyObject *args)
{
    unsigned long long a, b, n, size;
    struct difference found = {0};
    bool differs;

    (void)module;
    if (!PyArg_ParseTuple(args, "KKKK:difference", &a, &b, &n, &size))
        return NULL;
    Py_BEGIN_ALLOW_THREADS differs =
        difference_find((const void *)(uintptr_t)a, (const void *)(uintptr_t)b, n,
                        (size_t)size, &found);
    Py_END_ALLOW_THREADS if (!differs) Py_RETURN_NONE;
    return Py_BuildValue("KK", (unsigned long long)found.at,
                         (unsigned long long)found.n);
}

static PyMethodDef methods[] = {
    {"digest", py_digest, METH_VARARGS, "digest(address, n): 64 bits of n bytes"},
    {"difference", py_difference, METH_VARARGS,
     "difference(address, address, n, size) -> (the first of n elements that differs, "
     "how "
     "many do), or None"},
    {NULL, NULL, 0, NULL},
};

int replica_add_to(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
