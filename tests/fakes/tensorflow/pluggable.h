/* SPDX-License-Identifier: Apache-2.0 */
/* TensorFlow's C API of pluggable devices, version 0.0.1, as prototypes of our own
 * (tensorflow/c/experimental/stream_executor). Each struct says its size first. Streams
 * and events are those of the fake driver. The tables of functions are in gpu.c, behind
 * the functions. */
#ifndef TESTS_FAKES_TENSORFLOW_PLUGGABLE_H
#define TESTS_FAKES_TENSORFLOW_PLUGGABLE_H

#include "runtime/tensorflow/tf_c_api.h"
#include "tests/fakes/cuda/fake_cuda.h"

struct sp_memory {
    size_t size;
    void *ext, *opaque;
    uint64_t bytes, payload;
};

struct sp_device {
    size_t size;
    void *ext;
    int32_t ordinal;
    void *handle;
    const char *hardware, *vendor, *pci;
};

struct sp_params { /* of any "create": what is to be filled */
    size_t size;
    void *ext;
    void *what;
};

struct sp_device_params {
    size_t size;
    void *ext;
    int32_t ordinal;
    struct sp_device *device;
};

struct sp_device_fns {
    size_t size;
    void *ext;
    void (*none[3])(void);
};

struct sp_timer_fns {
    size_t size;
    void *ext;
    uint64_t (*nanoseconds)(void *);
};

struct sp_platform {
    size_t size;
    void *ext;
    const char *name, *type;
    unsigned char has_unified, uses_bfc, grows;
};

struct se_registration {
    size_t size;
    void *ext;
    int32_t major, minor, patch;
    struct sp_platform *platform;
    struct sp_platform_fns *fns;
    void (*platform_free)(void *);
    void (*fns_free)(void *);
};

/* Kernels of the plug-in; the stream is that which TensorFlow orders memory on. */
cu_stream TF_GetStream(struct TF_OpKernelContext *c, struct TF_Status *s);

#endif
