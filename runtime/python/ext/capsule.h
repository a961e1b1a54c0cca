/* SPDX-License-Identifier: Apache-2.0 */
/* A result of the runtime as a DLPack tensor, which frameworks take without a copy. */
#ifndef RUNTIME_PYTHON_EXT_CAPSULE_H
#define RUNTIME_PYTHON_EXT_CAPSULE_H

#include "runtime/python/ext/module.h"

/* A new capsule "dltensor" over the memory of an ended operation's result; NULL with an
 * exception. Takes ownership of the handle on success: the last holder of the tensor
 * releases it with the memory. dtype: enum hvd_dtype; bool is exported as uint8, uint16
 * as int16. device: a GPU, or HVD_DEVICE_HOST.
 *
 * The capsule has no stream. Take it in the stream that has waited (wait_on_stream);
 * any other stream must wait for that one first. The memory is freed in the order of
 * the submit's stream. */
PyObject *capsule_new(hvd_handle handle,
                      int dtype,
                      void *data,
                      int device,
                      int ndim,
                      const int64_t *shape);

#endif
