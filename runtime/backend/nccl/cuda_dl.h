/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA driver API by dlopen, with prototypes of our own: libhvd_cuda.so is built
 * without CUDA and runs with every driver from 11.0. Only this header has its names.
 * cuGetProcAddress is not used: every driver exports names with an explicit version. */
#ifndef RUNTIME_BACKEND_NCCL_CUDA_DL_H
#define RUNTIME_BACKEND_NCCL_CUDA_DL_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"

typedef int cu_device;
typedef struct cu_ctx_s *cu_ctx;
typedef struct cu_stream_s *cu_stream; /* NULL: the legacy default stream */
typedef struct cu_event_s *cu_event;
typedef struct cu_func_s *cu_func;
typedef struct cu_module_s *cu_module;
typedef struct cu_graph_s *cu_graph;
typedef struct cu_graph_exec_s *cu_graph_exec;
typedef struct cu_pool_s *cu_pool;
typedef uint64_t cu_ptr;
struct cu_uuid {
    uint8_t bytes[16];
};
struct cu_pool_props { /* 88 bytes in every version */
    int alloc_type;    /* 1: pinned */
    int handle_types;
    int location_type; /* 1: device */
    int location;
    void *security;
    uint8_t reserved[64]; /* zero */
};

/* Results. */
enum {
    CU_OK = 0,
    CU_INVALID_VALUE = 1,
    CU_OUT_OF_MEMORY = 2,
    CU_NOT_INITIALIZED = 3,
    CU_DEINITIALIZED = 4,
    CU_DEVICE_UNAVAILABLE = 46,
    CU_NO_DEVICE = 100,
    CU_INVALID_DEVICE = 101,
    CU_INVALID_IMAGE = 200,
    CU_INVALID_CONTEXT = 201,
    CU_NO_BINARY = 209,
    CU_ECC_UNCORRECTABLE = 214,
    CU_INVALID_PTX = 218,
    CU_NVLINK_UNCORRECTABLE = 220,
    CU_UNSUPPORTED_PTX = 222,
    CU_CONTAINED = 226,
    CU_INVALID_HANDLE = 400,
    CU_NOT_FOUND = 500,
    CU_NOT_READY = 600,
    CU_ILLEGAL_ADDRESS = 700,
    CU_LAUNCH_TIMEOUT = 702,
    CU_CONTEXT_DESTROYED = 709,
    CU_ASSERT = 710,
    CU_HARDWARE_STACK = 714,
    CU_ILLEGAL_INSTRUCTION = 715,
    CU_MISALIGNED_ADDRESS = 716,
    CU_INVALID_ADDRESS_SPACE = 717,
    CU_INVALID_PC = 718,
    CU_LAUNCH_FAILED = 719,
    CU_TENSOR_MEMORY_LEAK = 721,
    CU_NOT_SUPPORTED = 801,
    CU_SYSTEM_NOT_READY = 802,
    CU_SYSTEM_DRIVER_MISMATCH = 803,
    CU_COMPAT_NOT_SUPPORTED = 804,
    CU_MPS_CLIENT_TERMINATED = 810,
    CU_CAPTURE_UNSUPPORTED = 900,
    CU_CAPTURE_INVALIDATED = 901,
    CU_CAPTURE_IMPLICIT = 906,
    CU_CAPTURE_LAST = 908,
    CU_EXTERNAL_DEVICE = 911,
    CU_UNKNOWN = 999
};

enum { /* cuDeviceGetAttribute */
       CU_ATTR_MULTIPROCESSORS = 16,
       CU_ATTR_SM_MAJOR = 75,
       CU_ATTR_SM_MINOR = 76,
       CU_ATTR_MEMORY_POOLS = 115
};
enum { /* cuPointerGetAttribute */
       CU_POINTER_MEMORY_TYPE = 2,
       CU_POINTER_IS_MANAGED = 8,
       CU_POINTER_ORDINAL = 9
};
enum { CU_MEMORY_HOST = 1, CU_MEMORY_DEVICE = 2 };
enum { CU_STREAM_NON_BLOCKING = 1, CU_EVENT_DISABLE_TIMING = 2 };
enum { CU_CAPTURE_GLOBAL = 0, CU_CAPTURE_THREAD_LOCAL = 1, CU_CAPTURE_RELAXED = 2 };
enum { CU_CAPTURE_NONE = 0, CU_CAPTURE_ACTIVE = 1, CU_CAPTURE_BROKEN = 2 };
enum {                                 /* cuMemPoolSetAttribute */
       CU_POOL_MAKES_STREAMS_WAIT = 3, /* int: ..._REUSE_ALLOW_INTERNAL_DEPENDENCIES */
       CU_POOL_RELEASE_THRESHOLD = 4   /* uint64_t */
};

/* X(name here, symbol, least driver or 0: always required, arguments) */
/* clang-format off */
#define CUDA_SYMBOLS(X)                                                                            \
    X(init, cuInit, 0, (unsigned flags))                                                           \
    X(driver_version, cuDriverGetVersion, 0, (int *ret))                                           \
    X(device_get, cuDeviceGet, 0, (cu_device *ret, int ordinal))                                   \
    X(device_count, cuDeviceGetCount, 0, (int *ret))                                               \
    X(device_name, cuDeviceGetName, 0, (char *ret, int size, cu_device d))                         \
    X(device_attr, cuDeviceGetAttribute, 0, (int *ret, int attr, cu_device d))                     \
    X(device_uuid_v1, cuDeviceGetUuid, 0, (struct cu_uuid *ret, cu_device d))                      \
    X(device_uuid, cuDeviceGetUuid_v2, 11040, (struct cu_uuid *ret, cu_device d))                  \
    X(device_memory, cuDeviceTotalMem_v2, 0, (size_t *ret, cu_device d))                           \
    X(pci_bus_id, cuDeviceGetPCIBusId, 0, (char *ret, int size, cu_device d))                      \
    X(ctx_retain, cuDevicePrimaryCtxRetain, 0, (cu_ctx *ret, cu_device d))                         \
    X(ctx_release, cuDevicePrimaryCtxRelease_v2, 0, (cu_device d))                                 \
    X(ctx_push, cuCtxPushCurrent_v2, 0, (cu_ctx c))                                                \
    X(ctx_pop, cuCtxPopCurrent_v2, 0, (cu_ctx *ret))                                               \
    X(ctx_sync, cuCtxSynchronize, 0, (void))                                                       \
    X(ctx_record_event, cuCtxRecordEvent, 12050, (cu_ctx c, cu_event e))                           \
    X(priority_range, cuCtxGetStreamPriorityRange, 0, (int *ret_least, int *ret_greatest))         \
    X(capture_mode, cuThreadExchangeStreamCaptureMode, 0, (int *mode))                             \
    X(stream_new, cuStreamCreateWithPriority, 0, (cu_stream *ret, unsigned flags, int priority))   \
    X(stream_free, cuStreamDestroy_v2, 0, (cu_stream s))                                           \
    X(stream_wait, cuStreamWaitEvent, 0, (cu_stream s, cu_event e, unsigned flags))                \
    X(stream_query, cuStreamQuery, 0, (cu_stream s))                                               \
    X(stream_capturing, cuStreamIsCapturing, 0, (cu_stream s, int *ret))                           \
    X(event_new, cuEventCreate, 0, (cu_event *ret, unsigned flags))                                \
    X(event_record, cuEventRecord, 0, (cu_event e, cu_stream s))                                   \
    X(event_query, cuEventQuery, 0, (cu_event e))                                                  \
    X(event_free, cuEventDestroy_v2, 0, (cu_event e))                                              \
    X(mem_alloc, cuMemAlloc_v2, 0, (cu_ptr *ret, size_t bytes))                                    \
    X(mem_free, cuMemFree_v2, 0, (cu_ptr p))                                                       \
    X(mem_alloc_async, cuMemAllocAsync, 11020, (cu_ptr *ret, size_t bytes, cu_stream s))           \
    X(mem_alloc_from, cuMemAllocFromPoolAsync, 11020,                                              \
      (cu_ptr *ret, size_t bytes, cu_pool pool, cu_stream s))                                      \
    X(mem_free_async, cuMemFreeAsync, 11020, (cu_ptr p, cu_stream s))                              \
    X(pool_default, cuDeviceGetDefaultMemPool, 11020, (cu_pool *ret, cu_device d))                 \
    X(pool_new, cuMemPoolCreate, 11020, (cu_pool *ret, const struct cu_pool_props *p))             \
    X(pool_free, cuMemPoolDestroy, 11020, (cu_pool p))                                             \
    X(pool_set, cuMemPoolSetAttribute, 11020, (cu_pool p, int attr, void *value))                  \
    X(host_alloc, cuMemHostAlloc, 0, (void **ret, size_t bytes, unsigned flags))                   \
    X(host_free, cuMemFreeHost, 0, (void *p))                                                      \
    X(copy_up, cuMemcpyHtoDAsync_v2, 0, (cu_ptr dst, const void *src, size_t n, cu_stream s))      \
    X(copy_down, cuMemcpyDtoHAsync_v2, 0, (void *dst, cu_ptr src, size_t n, cu_stream s))          \
    X(copy, cuMemcpyDtoDAsync_v2, 0, (cu_ptr dst, cu_ptr src, size_t n, cu_stream s))              \
    X(set_d8, cuMemsetD8Async, 0, (cu_ptr dst, unsigned char v, size_t n, cu_stream s))            \
    X(pointer_attr, cuPointerGetAttribute, 0, (void *ret, int attr, cu_ptr p))                     \
    X(module_load, cuModuleLoadData, 0, (cu_module *ret, const void *image))                       \
    X(module_func, cuModuleGetFunction, 0, (cu_func *ret, cu_module m, const char *name))          \
    X(module_free, cuModuleUnload, 0, (cu_module m))                                               \
    X(launch, cuLaunchKernel, 0,                                                                   \
      (cu_func f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,    \
       unsigned shared_bytes, cu_stream s, void **params, void **extra))                           \
    X(capture_begin, cuStreamBeginCapture_v2, 0, (cu_stream s, int mode))                          \
    X(capture_end, cuStreamEndCapture, 0, (cu_stream s, cu_graph *ret))                            \
    X(graph_make, cuGraphInstantiateWithFlags, 11040,                                              \
      (cu_graph_exec *ret, cu_graph g, unsigned long long flags))                                  \
    X(graph_launch, cuGraphLaunch, 0, (cu_graph_exec g, cu_stream s))                              \
    X(graph_exec_free, cuGraphExecDestroy, 0, (cu_graph_exec g))                                   \
    X(graph_free, cuGraphDestroy, 0, (cu_graph g))                                                 \
    X(error_name, cuGetErrorName, 0, (int result, const char **ret))                               \
    X(error_text, cuGetErrorString, 0, (int result, const char **ret))
/* clang-format on */

struct cuda_api {
    int version; /* CUDA version of the driver: 1000 * major + 10 * minor */
/* NOLINTBEGIN(bugprone-macro-parentheses): names and argument lists */
#define CUDA_FIELD(name, symbol, least, args) int(*name) args;
    CUDA_SYMBOLS(CUDA_FIELD) /* NULL: not in this driver */
#undef CUDA_FIELD
    /* NOLINTEND(bugprone-macro-parentheses) */
};

/* Fills the caller's table. The library stays loaded; only cuDriverGetVersion is
 * called. -ENODEV: no such library; -ENOTSUP: below 11.0, or a required symbol is
 * missing. Any thread. */
int cuda_load(const char *name, struct cuda_api *ret, struct err *err);
#define CUDA_LIBRARY "libcuda.so.1"

/* "cuMemAlloc_v2: out of memory (CUDA_ERROR_OUT_OF_MEMORY)". -ENOMEM; -EIO: the
 * context is lost permanently; -EBUSY: a capture forbids the call; -ENODEV, -ENOTSUP;
 * else -EINVAL. */
int cuda_fail(const struct cuda_api *api,
              const char *call,
              int result,
              struct err *err);

/* CUDA_TRY(g->cu, event_record, err, e, s): 0 or cuda_fail's. */
#define CUDA_TRY(api, name, err, ...)                                                  \
    __extension__({                                                                    \
        int result_ = (api)->name(__VA_ARGS__);                                        \
        result_ == CU_OK ? 0                                                           \
                         : cuda_fail((api), cuda_symbol(CUDA_##name), result_, err);   \
    })
enum cuda_call {
#define CUDA_NUMBER(name, symbol, least, args) CUDA_##name,
    CUDA_SYMBOLS(CUDA_NUMBER)
#undef CUDA_NUMBER
        CUDA_CALLS
};
const char *cuda_symbol(enum cuda_call c); /* "cuEventRecord" */

#endif
