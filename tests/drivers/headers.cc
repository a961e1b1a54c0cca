// SPDX-License-Identifier: Apache-2.0
// Our prototypes, structs and numbers of NVIDIA's libraries against their own headers:
// it compiles, or it does not. Types have the same shape if both are numbers of one
// size, or both are pointers to types of the same shape; what only the library knows
// has any name. C++ because C cannot take a function's type apart.
#include <climits>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda.h>
#ifdef NVML
#include <nvml.h>
#endif
#ifdef NCCL
#include <nccl.h>
#endif

// Two of our names are CUDA's own.
constexpr long their_non_blocking = CU_STREAM_NON_BLOCKING,
               their_disable_timing = CU_EVENT_DISABLE_TIMING;
#ifdef NCCL
constexpr long their_shrink_default = NCCL_SHRINK_DEFAULT;
#undef NCCL_SHRINK_DEFAULT
#endif
#define CU_STREAM_NON_BLOCKING  OUR_NON_BLOCKING
#define CU_EVENT_DISABLE_TIMING OUR_DISABLE_TIMING
extern "C" {
#include "runtime/backend/nccl/cuda_dl.h"
#ifdef NVML
#include "runtime/backend/nccl/nvml_dl.h"
#endif
#ifdef NCCL
#include "runtime/backend/nccl/nccl_dl.h"
#endif
}

template <class A, class B> constexpr bool alike()
{
    if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
        using X = std::remove_pointer_t<A>;
        using Y = std::remove_pointer_t<B>;
        return std::is_const_v<
                   X> == std::is_const_v<Y> && alike<std::remove_const_t<X>, std::remove_const_t<Y>>();
    } else if constexpr (std::is_pointer_v<A> || std::is_pointer_v<B>) {
        return false;
    } else if constexpr (std::is_void_v<A> || std::is_void_v<B>) {
        return std::is_void_v<A> && std::is_void_v<B>;
    } else if constexpr (std::is_class_v<A> && std::is_class_v<B>) {
        return true; // their sizes are looked at below
    } else {
        return std::is_arithmetic_v<
                   A> + std::is_enum_v<A> == std::is_arithmetic_v<B> + std::is_enum_v<B> && sizeof(A) == sizeof(B);
    }
}

template <class F, class G> struct same_call : std::false_type {
};
template <class R, class... A, class S, class... B>
requires(sizeof...(A) == sizeof...(B)) struct same_call<R(A...), S(B...)>
    : std::bool_constant<alike<R, S>() && (alike<A, B>() && ...)> {
};

#define CALL(symbol, ret, args)                                                        \
    static_assert(same_call<decltype(::symbol), ret args>::value,                      \
                  #symbol " has another prototype");
#define NUMBER(ours, theirs)                                                           \
    static_assert((long)(ours) == (long)(theirs), #theirs " has another value");
#define SIZE(ours, theirs)                                                             \
    static_assert(sizeof(ours) == sizeof(theirs), #theirs " has another size");
#define PLACE(ours, field, theirs, name)                                               \
    static_assert(offsetof(ours, field) == offsetof(theirs, name),                     \
                  #name " is at another place");

#define CUDA(name, symbol, least, args) CALL(symbol, int, args)
CUDA_SYMBOLS(CUDA)
SIZE(cu_uuid, CUuuid)
SIZE(cu_pool_props, CUmemPoolProps)
PLACE(cu_pool_props, handle_types, CUmemPoolProps, handleTypes)
PLACE(cu_pool_props, location_type, CUmemPoolProps, location)
PLACE(cu_pool_props, security, CUmemPoolProps, win32SecurityAttributes)
NUMBER(1, CU_MEM_ALLOCATION_TYPE_PINNED)
NUMBER(1, CU_MEM_LOCATION_TYPE_DEVICE)
NUMBER(CU_ECC_UNCORRECTABLE, CUDA_ERROR_ECC_UNCORRECTABLE)
NUMBER(CU_NVLINK_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE)
NUMBER(CU_CONTAINED, CUDA_ERROR_CONTAINED)
NUMBER(CU_CONTEXT_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED)
NUMBER(CU_ASSERT, CUDA_ERROR_ASSERT)
NUMBER(CU_HARDWARE_STACK, CUDA_ERROR_HARDWARE_STACK_ERROR)
NUMBER(CU_ILLEGAL_INSTRUCTION, CUDA_ERROR_ILLEGAL_INSTRUCTION)
NUMBER(CU_MISALIGNED_ADDRESS, CUDA_ERROR_MISALIGNED_ADDRESS)
NUMBER(CU_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_ADDRESS_SPACE)
NUMBER(CU_INVALID_PC, CUDA_ERROR_INVALID_PC)
NUMBER(CU_TENSOR_MEMORY_LEAK, CUDA_ERROR_TENSOR_MEMORY_LEAK)
NUMBER(CU_MPS_CLIENT_TERMINATED, CUDA_ERROR_MPS_CLIENT_TERMINATED)
NUMBER(CU_EXTERNAL_DEVICE, CUDA_ERROR_EXTERNAL_DEVICE)
NUMBER(CU_ATTR_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
NUMBER(CU_ATTR_SM_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
NUMBER(CU_ATTR_SM_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
NUMBER(CU_ATTR_MEMORY_POOLS, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)
NUMBER(CU_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
NUMBER(CU_POINTER_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED)
NUMBER(CU_POINTER_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
NUMBER(CU_MEMORY_HOST, CU_MEMORYTYPE_HOST)
NUMBER(CU_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE)
NUMBER(OUR_NON_BLOCKING, their_non_blocking)
NUMBER(OUR_DISABLE_TIMING, their_disable_timing)
NUMBER(CU_CAPTURE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL)
NUMBER(CU_CAPTURE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
NUMBER(CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED)
NUMBER(CU_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE)
NUMBER(CU_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE)
NUMBER(CU_CAPTURE_BROKEN, CU_STREAM_CAPTURE_STATUS_INVALIDATED)
NUMBER(CU_POOL_MAKES_STREAMS_WAIT, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
NUMBER(CU_POOL_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)

#ifdef NVML
#define LOOK(name, symbol, args) CALL(symbol, int, args)
NVML_SYMBOLS(LOOK)
#undef LOOK
SIZE(nvml_event, nvmlEventData_t)
PLACE(nvml_event, data, nvmlEventData_t, eventData)
PLACE(nvml_event, compute_instance, nvmlEventData_t, computeInstanceId)
SIZE(nvml_pci, nvmlPciInfo_t)
PLACE(nvml_pci, id, nvmlPciInfo_t, busId)
NUMBER(NVML_XID_CRITICAL, nvmlEventTypeXidCriticalError)
NUMBER(NVML_TIMEOUT, NVML_ERROR_TIMEOUT)
NUMBER(NVML_GPU_IS_LOST, NVML_ERROR_GPU_IS_LOST)
NUMBER(NVML_MAX_LINKS, NVML_NVLINK_MAX_LINKS)
#endif

#ifdef NCCL
#define LOOK(name, symbol, least, args)      CALL(symbol, int, args)
#define LOOK_TEXT(name, symbol, least, args) CALL(symbol, const char *, args)
NCCL_SYMBOLS(LOOK)
NCCL_TEXTS(LOOK_TEXT)
SIZE(nccl_id, ncclUniqueId)
NUMBER(NCCL_OK, ncclSuccess)
NUMBER(NCCL_CUDA, ncclUnhandledCudaError)
NUMBER(NCCL_SYSTEM, ncclSystemError)
NUMBER(NCCL_INTERNAL, ncclInternalError)
NUMBER(NCCL_ARGUMENT, ncclInvalidArgument)
NUMBER(NCCL_USAGE, ncclInvalidUsage)
NUMBER(NCCL_REMOTE, ncclRemoteError)
NUMBER(NCCL_IN_PROGRESS, ncclInProgress)
#if NCCL_VERSION_CODE >= 23000
NUMBER(NCCL_TIMEOUT, ncclTimeout)
#endif
NUMBER(NCCL_I8, ncclInt8)
NUMBER(NCCL_U8, ncclUint8)
NUMBER(NCCL_I32, ncclInt32)
NUMBER(NCCL_U32, ncclUint32)
NUMBER(NCCL_I64, ncclInt64)
NUMBER(NCCL_U64, ncclUint64)
NUMBER(NCCL_F16, ncclFloat16)
NUMBER(NCCL_F32, ncclFloat32)
NUMBER(NCCL_F64, ncclFloat64)
NUMBER(NCCL_BF16, ncclBfloat16)
NUMBER(NCCL_SUM, ncclSum)
NUMBER(NCCL_PROD, ncclProd)
NUMBER(NCCL_MAX, ncclMax)
NUMBER(NCCL_MIN, ncclMin)
NUMBER(NCCL_AVG, ncclAvg)
NUMBER(NCCL_NOCOLOR, NCCL_SPLIT_NOCOLOR)
NUMBER(NCCL_SHRINK_DEFAULT, their_shrink_default)
#define FIELD(ours, theirs) PLACE(nccl_config, ours, ncclConfig_t, theirs)
FIELD(size, size)
FIELD(magic, magic)
FIELD(version, version)
FIELD(blocking, blocking)
FIELD(cga_cluster, cgaClusterSize)
FIELD(min_ctas, minCTAs)
FIELD(max_ctas, maxCTAs)
FIELD(net_name, netName)
FIELD(split_share, splitShare)
FIELD(traffic_class, trafficClass)
FIELD(comm_name, commName)
FIELD(collnet, collnetEnable)
FIELD(cta_policy, CTAPolicy)
FIELD(shrink_share, shrinkShare)
FIELD(nvls_ctas, nvlsCTAs)
static_assert(sizeof(nccl_config) <= sizeof(ncclConfig_t),
              "ours is longer than NCCL's");
static_assert(NCCL_CONFIG_UNDEF_INT == INT_MIN && !NCCL_CONFIG_UNDEF_PTR,
              "an unset field has another value");
constexpr ncclConfig_t fresh = NCCL_CONFIG_INITIALIZER;
static_assert(fresh.magic == 0xcafebeef, "the magic number is another");
#endif
