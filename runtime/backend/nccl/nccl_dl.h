/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL by dlopen, any version from 2.10, with prototypes of our own. Only this header
 * has its names. */
#ifndef RUNTIME_BACKEND_NCCL_NCCL_DL_H
#define RUNTIME_BACKEND_NCCL_NCCL_DL_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/backend/device.h"
#include "runtime/backend/nccl/cuda_dl.h"

#define NCCL_OLDEST 21000 /* version code: major * 10000 + minor * 100 + patch */

typedef struct nccl_comm_s *nccl_comm;
struct nccl_id { /* passed by value */
    char bytes[128];
};

enum nccl_result {
    NCCL_OK,
    NCCL_CUDA,
    NCCL_SYSTEM,
    NCCL_INTERNAL,
    NCCL_ARGUMENT,
    NCCL_USAGE,
    NCCL_REMOTE,      /* 2.13 */
    NCCL_IN_PROGRESS, /* 2.14 */
    NCCL_TIMEOUT      /* 2.30 */
};
enum nccl_dtype {
    NCCL_I8,
    NCCL_U8,
    NCCL_I32,
    NCCL_U32,
    NCCL_I64,
    NCCL_U64,
    NCCL_F16,
    NCCL_F32,
    NCCL_F64,
    NCCL_BF16
};
enum nccl_op { NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN, NCCL_AVG };
#define NCCL_NOCOLOR        (-1) /* ncclCommSplit: not a member */
#define NCCL_SHRINK_DEFAULT 0
/* A group in progress is a job. From 2.14 on it belongs to the thread that started it
 * and lives in memory of that thread. From NCCL_JOB_LINKED on each of its
 * communicators points to it. From NCCL_JOB_ASKED on ncclCommGetAsyncError completes
 * it, so that call is no longer read-only. From NCCL_JOB_FREE on it has memory of its
 * own. */
#define NCCL_JOB_LINKED     21901
#define NCCL_JOB_ASKED      22602
#define NCCL_JOB_FREE       22703

/* Layout of 2.27, a prefix of all later ones; 2.14 to 2.26 read a shorter prefix. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster, min_ctas, max_ctas;
    const char *net_name;
    int split_share, traffic_class;
    const char *comm_name;
    int collnet, cta_policy, shrink_share, nvls_ctas;
};

/* X(name here, symbol, least version or 0: always required, arguments) */
/* clang-format off */
#define NCCL_SYMBOLS(X)                                                                            \
    X(get_version, ncclGetVersion, 0, (int *ret))                                                  \
    X(unique_id, ncclGetUniqueId, 0, (struct nccl_id *ret))                                        \
    X(init, ncclCommInitRank, 0, (nccl_comm *ret, int n, struct nccl_id id, int rank))             \
    X(init_config, ncclCommInitRankConfig, 21403,                                                  \
      (nccl_comm *ret, int n, struct nccl_id id, int rank, struct nccl_config *c))                 \
    X(finalize, ncclCommFinalize, 21403, (nccl_comm c))                                            \
    X(destroy, ncclCommDestroy, 0, (nccl_comm c))                                                  \
    X(abort, ncclCommAbort, 0, (nccl_comm c))                                                      \
    X(async_error, ncclCommGetAsyncError, 0, (nccl_comm c, int *ret))                              \
    X(count, ncclCommCount, 0, (nccl_comm c, int *ret))                                            \
    X(group_start, ncclGroupStart, 0, (void))                                                      \
    X(group_end, ncclGroupEnd, 0, (void))                                                          \
    X(all_reduce, ncclAllReduce, 0,                                                                \
      (const void *in, void *out, size_t n, int dtype, int op, nccl_comm c, cu_stream s))          \
    X(reduce, ncclReduce, 0,                                                                       \
      (const void *in, void *out, size_t n, int dtype, int op, int root, nccl_comm c, cu_stream s)) \
    X(broadcast, ncclBroadcast, 0,                                                                 \
      (const void *in, void *out, size_t n, int dtype, int root, nccl_comm c, cu_stream s))        \
    X(all_gather, ncclAllGather, 0,                                                                \
      (const void *in, void *out, size_t n_in, int dtype, nccl_comm c, cu_stream s))               \
    X(reduce_scatter, ncclReduceScatter, 0,                                                        \
      (const void *in, void *out, size_t n_out, int dtype, int op, nccl_comm c, cu_stream s))      \
    X(send, ncclSend, 0,                                                                           \
      (const void *in, size_t n, int dtype, int peer, nccl_comm c, cu_stream s))                   \
    X(recv, ncclRecv, 0, (void *out, size_t n, int dtype, int peer, nccl_comm c, cu_stream s))     \
    X(split, ncclCommSplit, 21801,                                                                 \
      (nccl_comm c, int color, int key, nccl_comm *ret, struct nccl_config *config))               \
    X(mem_alloc, ncclMemAlloc, 21901, (void **ret, size_t bytes))                                  \
    X(mem_free, ncclMemFree, 21901, (void *p))                                                     \
    X(register_, ncclCommRegister, 21901, (nccl_comm c, void *p, size_t bytes, void **ret))        \
    X(deregister, ncclCommDeregister, 21901, (nccl_comm c, void *handle))                          \
    X(shrink, ncclCommShrink, 22703,                                                               \
      (nccl_comm c, int *excluded, int n, nccl_comm *ret, struct nccl_config *config, int flags))  \
    X(revoke, ncclCommRevoke, 22807, (nccl_comm c, int flags))
#define NCCL_TEXTS(X)                                                                              \
    X(error_text, ncclGetErrorString, 0, (int result))                                             \
    X(last_error, ncclGetLastError, 21304, (nccl_comm c))
/* clang-format on */

struct nccl_api {
    int version; /* 22705 */
    char path[256];
    bool has_nonblocking, has_split, has_register, has_shrink;
    bool was_there; /* loaded before us: may have read its environment */
/* NOLINTBEGIN(bugprone-macro-parentheses): names and argument lists */
#define NCCL_FIELD(name, symbol, least, args) int(*name) args;
#define NCCL_TEXT(name, symbol, least, args)  const char *(*name)args;
    NCCL_SYMBOLS(NCCL_FIELD) /* NULL: absent, or newer than the version */
    NCCL_TEXTS(NCCL_TEXT)
#undef NCCL_FIELD
#undef NCCL_TEXT
    /* NOLINTEND(bugprone-macro-parentheses) */
};

/* Our size, which NCCL cuts to its own; blocking 0; split_share 1 from 2.18 (all
 * communicators of a world die together anyway); all else undefined. name: borrowed,
 * "" none; not read before 2.27. */
void nccl_config_init(struct nccl_config *c, int version, const char *name);

/* Search order: 1 c->nccl_lib (if set, no other is tried); 2 a libnccl.so.2 that the
 * process has loaded; 3 c->nccl_hint; 4 the loader's path; 5
 * c->bundle_dir/nccl/libnccl.so.2. The error message lists each that was tried.
 * -ENOENT; -ENOTSUP: older than 2.10, or not major 2. It stays loaded. */
int nccl_load(const struct device_config *c, struct nccl_api *ret, struct err *err);

/* "ncclAllReduce: unhandled cuda error: <NCCL's last message>". comm may be NULL.
 * Always -EIO, except -EPROTO for usage and argument errors (ours). */
int nccl_fail(const struct nccl_api *api,
              nccl_comm comm,
              const char *call,
              int result,
              struct err *err);

/* Is this library built for a CUDA major version that the driver does not support?
 * Then 1 and the message; 0: no, or unknown. Called when the first init failed. */
int nccl_misfit(const struct nccl_api *api, int driver_version, struct err *err);

#endif
