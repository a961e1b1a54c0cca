/* SPDX-License-Identifier: Apache-2.0 */
/* A result of the runtime's as a DLPack tensor, which frameworks take without a copy.
 */
#ifndef RUNTIME_PYTHON_EXT_CAPSULE_H
#define RUNTIME_PYTHON_EXT_CAPSULE_H

#include "runtime/python/ext/module.h"

/* A new capsule "dltensor" over the memory of an ended operation's result; NULL with an
 * exception. Takes over the handle on success: it is released with the memory, by
 * whoever holds the tensor last. dtype: enum hvd_dtype; bool is told as uint8, uint16
 * as int16.
 * device: a GPU, or HVD_DEVICE_HOST. The capsule has no stream, as DLPack's rule is for
 * who takes it in the stream that has waited (wait_on_stream); any other stream waits
 * for that one first. The memory is given back in the order of the submit's stream. */
PyObject *capsule_new(hvd_handle handle,
                      int dtype,
                      void *data,
                      int device,
                      int ndim,
                      const int64_t *shape);

#endif
