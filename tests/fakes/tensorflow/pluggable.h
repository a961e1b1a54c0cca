/* SPDX-License-Identifier: Apache-2.0 */
/* TensorFlow's C API of pluggable devices, version 0.0.1, as prototypes of our own
 * (tensorflow/c/experimental/stream_executor). Each struct says its size first, and
 * functions stand where theirs do; streams and events are those of the fake driver. */
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

struct sp_executor {
    size_t size;
    void *ext;
    void (*allocate)(const struct sp_device *, uint64_t, int64_t, struct sp_memory *);
    void (*deallocate)(const struct sp_device *, struct sp_memory *);
    void *(*host_allocate)(const struct sp_device *, uint64_t);
    void (*host_deallocate)(const struct sp_device *, void *);
    void (*no_unified[2])(void);
    unsigned char (*stats)(const struct sp_device *, void *);
    unsigned char (*usage)(const struct sp_device *, int64_t *free, int64_t *all);
    void (*stream_new)(const struct sp_device *, cu_stream *, struct TF_Status *);
    void (*stream_free)(const struct sp_device *, cu_stream);
    void (*stream_depend)(const struct sp_device *,
                          cu_stream,
                          cu_stream other,
                          struct TF_Status *);
    void (*stream_status)(const struct sp_device *, cu_stream, struct TF_Status *);
    void (*event_new)(const struct sp_device *, cu_event *, struct TF_Status *);
    void (*event_free)(const struct sp_device *, cu_event);
    int (*event_status)(const struct sp_device *, cu_event);
    void (*event_record)(const struct sp_device *,
                         cu_stream,
                         cu_event,
                         struct TF_Status *);
    void (*event_wait)(const struct sp_device *,
                       cu_stream,
                       cu_event,
                       struct TF_Status *);
    void (*timer_new)(const struct sp_device *, void **, struct TF_Status *);
    void (*timer_free)(const struct sp_device *, void *);
    void (*timer_run[2])(const struct sp_device *,
                         cu_stream,
                         void *,
                         struct TF_Status *);
    void (*copy_down)(const struct sp_device *,
                      cu_stream,
                      void *,
                      const struct sp_memory *,
                      uint64_t,
                      struct TF_Status *);
    void (*copy_up)(const struct sp_device *,
                    cu_stream,
                    struct sp_memory *,
                    const void *,
                    uint64_t,
                    struct TF_Status *);
    void (*copy)(const struct sp_device *,
                 cu_stream,
                 struct sp_memory *,
                 const struct sp_memory *,
                 uint64_t,
                 struct TF_Status *);
    void (*copy_down_now)(const struct sp_device *,
                          void *,
                          const struct sp_memory *,
                          uint64_t,
                          struct TF_Status *);
    void (*copy_up_now)(const struct sp_device *,
                        struct sp_memory *,
                        const void *,
                        uint64_t,
                        struct TF_Status *);
    void (*copy_now)(const struct sp_device *,
                     struct sp_memory *,
                     const struct sp_memory *,
                     uint64_t,
                     struct TF_Status *);
    void (*event_block)(const struct sp_device *, cu_event, struct TF_Status *);
    void (*stream_block)(const struct sp_device *, cu_stream, struct TF_Status *);
    void (*sync)(const struct sp_device *, struct TF_Status *);
    void (*zero)(const struct sp_device *,
                 cu_stream,
                 struct sp_memory *,
                 uint64_t,
                 struct TF_Status *);
    void (*set8)(const struct sp_device *,
                 cu_stream,
                 struct sp_memory *,
                 uint8_t,
                 uint64_t,
                 struct TF_Status *);
    void (*set32)(const struct sp_device *,
                  cu_stream,
                  struct sp_memory *,
                  uint32_t,
                  uint64_t,
                  struct TF_Status *);
    unsigned char (*call)(const struct sp_device *,
                          cu_stream,
                          void (*)(void *, struct TF_Status *),
                          void *);
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

struct sp_platform_fns {
    size_t size;
    void *ext;
    void (*count)(const struct sp_platform *, int *, struct TF_Status *);
    void (*device_new)(const struct sp_platform *,
                       struct sp_device_params *,
                       struct TF_Status *);
    void (*device_free)(const struct sp_platform *, void *);
    void (*fns_new)(const struct sp_platform *, struct sp_params *, struct TF_Status *);
    void (*fns_free)(const struct sp_platform *, void *);
    void (*executor_new)(const struct sp_platform *,
                         struct sp_params *,
                         struct TF_Status *);
    void (*executor_free)(const struct sp_platform *, void *);
    void (*timer_new)(const struct sp_platform *,
                      struct sp_timer_fns *,
                      struct TF_Status *);
    void (*timer_free)(const struct sp_platform *, void *);
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
