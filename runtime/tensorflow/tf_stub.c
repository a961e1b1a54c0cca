/* SPDX-License-Identifier: Apache-2.0 */
/* tf_stub.c: a library with TensorFlow's soname and the names that hvd_tf.c needs, for
 * the linker only. It is never shipped and never runs; types do not matter to the
 * linker. */
#include "runtime/tensorflow/tf_c_api.h"

#define STUB(result, name, parameters)                                                 \
    __attribute__((visibility("default"))) void *stub_##name(void) __asm__(#name);     \
    void *stub_##name(void)                                                            \
    {                                                                                  \
        return NULL;                                                                   \
    }
HVD_TF_FUNCTIONS(STUB)
