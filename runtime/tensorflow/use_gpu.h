/* SPDX-License-Identifier: Apache-2.0 */
/* use_gpu.h: the one function of libhvd_tf.so that is not TensorFlow's to call. */
#ifndef RUNTIME_TENSORFLOW_USE_GPU_H
#define RUNTIME_TENSORFLOW_USE_GPU_H

#include "hvd.h"

/* Gives collectives kernels for GPUs, if tensors there can travel (hvd_device_report);
 * whether they have some. If not, ranks whose tensors are on GPUs will be told why
 * those of this one are not. Any thread, any number of times. Not at load: it opens the
 * driver, and a process that forks, or chooses its GPUs by the environment, after that
 * would be too late. TensorFlow looks for kernels when it places an operation, so those
 * that were placed before stay on the CPU. */
HVD_API int hvd_tf_use_gpu(void);

#endif
