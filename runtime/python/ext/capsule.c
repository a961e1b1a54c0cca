/* SPDX-License-Identifier: Apache-2.0 */
/* capsule.c: DLPack (https://dmlc.github.io/dlpack), as far as results need it: the
 * unversioned capsule of host memory or a GPU's, which every PyTorch from 1.10 takes.
 *
 * The framework renames the capsule to "used_dltensor" when it takes the tensor, and
 * calls the deleter when its last view is gone: in any thread, without the GIL, after
 * hvd_shutdown, in a forked child. So the deleter calls only hvd_release, which allows
 * all of that, and free(). A capsule that was never taken does the same when it is
 * freed.
 *
 * bool is exported as uint8 and uint16 as int16: PyTorch added their type numbers
 * later. Called by ending.c. */
#include "runtime/python/ext/capsule.h"

#include <stdlib.h>

/* --- the layout that DLPack fixes */

enum { DL_CPU = 1, DL_CUDA = 2 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4 };

struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t type, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* strides NULL: row by row */
    uint64_t byte_offset;
};

struct dl_managed {
    struct dl_tensor tensor;
    void *manager;
    void (*deleter)(struct dl_managed *self);
};

/* --- ours around it */

struct result {
    struct dl_managed dl; /* first: the deleter gets its address */
    hvd_handle handle;
    int64_t shape[HVD_MAX_DIMS], strides[HVD_MAX_DIMS];
};

static const struct {
    uint8_t type, bits;
} types[] = {
    [HVD_UINT8] = {DL_UINT, 8},       [HVD_INT8] = {DL_INT, 8},
    [HVD_UINT16] = {DL_INT, 16},      [HVD_INT16] = {DL_INT, 16},
    [HVD_INT32] = {DL_INT, 32},       [HVD_INT64] = {DL_INT, 64},
    [HVD_FLOAT16] = {DL_FLOAT, 16},   [HVD_FLOAT32] = {DL_FLOAT, 32},
    [HVD_FLOAT64] = {DL_FLOAT, 64},   [HVD_BOOL] = {DL_UINT, 8},
    [HVD_BFLOAT16] = {DL_BFLOAT, 16},
};

static void delete_result(struct dl_managed *dl)
{
    struct result *r = dl->manager;

    (void)hvd_release(r->handle); /* the handle was valid until here */
    free(r);
}

static void capsule_release(PyObject *capsule)
{
    struct dl_managed *dl;

    if (!PyCapsule_IsValid(capsule, "dltensor"))
        return; /* taken */
    dl = PyCapsule_GetPointer(capsule, "dltensor");
    dl->deleter(dl);
}

PyObject *capsule_new(hvd_handle handle,
                      int dtype,
                      void *data,
                      int device,
                      int ndim,
                      const int64_t *shape)
{
    struct result *r;
    struct dl_tensor *t;
    PyObject *capsule;
    int64_t stride = 1;

    if (dtype < 0 || dtype >= (int)(sizeof(types) / sizeof(types[0])))
        return PyErr_Format(PyExc_ValueError,
                            "dtype: %d is not a value of enum hvd_dtype", dtype);
    r = calloc(1, sizeof(*r));
    if (!r)
        return PyErr_NoMemory();
    t = &r->dl.tensor;
    t->data = data ? data : r; /* torch before 2.3 never calls the deleter of NULL */
    t->device_type = device == HVD_DEVICE_HOST ? DL_CPU : DL_CUDA;
    t->device_id = device == HVD_DEVICE_HOST ? 0 : device;
    t->ndim = ndim;
    t->type = types[dtype].type;
    t->bits = types[dtype].bits;
    t->lanes = 1;
    t->shape = r->shape;
    t->strides = r->strides;
    for (int i = ndim - 1; i >= 0; i--) {
        r->shape[i] = shape[i];
        r->strides[i] = stride;
        stride *= shape[i] > 0 ? shape[i] : 1;
    }
    r->dl.manager = r;
    r->dl.deleter = delete_result;
    r->handle = handle;
    capsule = PyCapsule_New(&r->dl, "dltensor", capsule_release);
    if (!capsule)
        free(r);
    return capsule;
}
