/* SPDX-License-Identifier: Apache-2.0 */
/* native.c: the Python extension _hvd._native, a thin skin over libhvd.so (hvd.h).
 *
 * Design. Framework code in Python passes addresses, shapes and dtypes as integers (a
 * tensor's data_ptr()), so one build serves every PyTorch and every CPython from 3.8
 * (limited API, abi3). There is no logic here: arguments are converted, one hvd_*
 * function is called, and its status becomes a Python exception with the runtime's
 * text.
 *
 *   module.c  its state, exceptions, arguments; what the files below call
 *   life.c    init and shutdown, ranks, timeline, reports     (start.c: its thread)
 *   sets.c    process sets
 *   progress.c  how far the program is
 *   submit.c  starts operations
 *   ending.c  ends them: poll, wait, results, memory          (capsule.c: DLPack)
 *   device.c  tensors on GPUs: streams that wait, the report
 *   replica.c digests of host memory, and where two parts of it differ
 *
 * METH_VARARGS, not METH_FASTCALL: the fast calling convention entered the limited API
 * only with Python 3.10, and we support 3.8. The price is one small tuple per call
 * (about 30 ns).
 *
 * Invariants
 *  - The GIL is released wherever the runtime may block: join, shutdown, wait, process
 *    sets, copy. join() and wait() sleep in slices of WAIT_SLICE_MS and check signals
 *    between, so that Ctrl-C works. hvd_init cannot be sliced, so it runs in a thread
 *    (start.c).
 *  - Tensors behind addresses are kept alive in the caller's dict (_hvd/handles.py) till
 *    their operation has ended. A submission enters them there itself.
 *  - All state is in the module object; there are no globals. libhvd.so is found in the
 *    folder of this file ($ORIGIN) and is the same instance that libhvd_tf.so uses.
 *
 * Called by _hvd/basics.py, _hvd/handles.py and _hvd/torch. */
#include "runtime/python/ext/module.h"

#include "runtime/python/ext/start.h"

static int module_exec(PyObject *module)
{
    PyObject *exceptions = PyImport_ImportModule("_hvd.exceptions");

    if (!exceptions)
        return -1;
    state_of(module)->internal_error =
        PyObject_GetAttrString(exceptions, "HorovodInternalError");
    Py_DECREF(exceptions);
    if (!state_of(module)->internal_error || life_add_to(module) || sets_add_to(module)
        || submit_add_to(module) || ending_add_to(module) || device_add_to(module)
        || progress_add_to(module) || replica_add_to(module) || elastic_add_to(module))
        return -1;
    return 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    struct state *state = state_of(module);

    if (state) /* Python 3.8 calls this before the module has its state */
        Py_VISIT(state->internal_error);
    return 0;
}

static int module_clear(PyObject *module)
{
    struct state *state = state_of(module);

    if (!state)
        return 0;
    Py_CLEAR(state->internal_error);
    start_unref(state->start);
    state->start = NULL;
    return 0;
}

static void module_free(void *module)
{
    (void)module_clear(module);
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
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__native(void);
PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
