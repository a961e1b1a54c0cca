/* SPDX-License-Identifier: Apache-2.0 */
/* use_gpu.h: the one function of libhvd_tf.so that Python calls instead of
 * TensorFlow. */
#ifndef RUNTIME_TENSORFLOW_USE_GPU_H
#define RUNTIME_TENSORFLOW_USE_GPU_H

#include "hvd.h"

/* Registers kernels for GPUs, if collectives on GPU tensors work (hvd_device_report);
 * returns whether it did. If not, ranks with tensors on GPUs report the reason. Any
 * thread, any number of times. Not called at load: it opens the driver, and then a
 * process could neither fork nor choose its GPUs by the environment. TensorFlow looks
 * for kernels when it places an operation, so operations placed before stay on
 * the CPU. */
HVD_API int hvd_tf_use_gpu(void);

#endif
