/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and names of element types, reduce operations and collectives.
 *
 * One table per kind, indexed by the wire value. A value out of range, which may come
 * from a peer or a binding, has size 0 and the name "unknown". Pure. */
#include "runtime/core/types.h"

static const struct {
    const char *name;
    size_t size_bytes;
    bool is_float;
} dtypes[DT_COUNT] = {
    [DT_U8] = {"uint8", 1, false},     [DT_I8] = {"int8", 1, false},
    [DT_U16] = {"uint16", 2, false},   [DT_I16] = {"int16", 2, false},
    [DT_I32] = {"int32", 4, false},    [DT_I64] = {"int64", 8, false},
    [DT_F16] = {"float16", 2, true},   [DT_F32] = {"float32", 4, true},
    [DT_F64] = {"float64", 8, true},   [DT_BOOL] = {"bool", 1, false},
    [DT_BF16] = {"bfloat16", 2, true},
};

static const char *const op_names[OP_COUNT] = {
    [OP_AVERAGE] = "AVERAGE", [OP_SUM] = "SUM", [OP_ADASUM] = "ADASUM",
    [OP_MIN] = "MIN",         [OP_MAX] = "MAX", [OP_PRODUCT] = "PRODUCT",
};

static const char *const coll_names[COLL_COUNT] = {
    [COLL_ALLREDUCE] = "ALLREDUCE",
    [COLL_ALLGATHER] = "ALLGATHER",
    [COLL_BROADCAST] = "BROADCAST",
    [COLL_BARRIER] = "BARRIER",
    [COLL_ALLTOALL] = "ALLTOALL",
    [COLL_REDUCESCATTER] = "REDUCESCATTER",
    [COLL_REDUCE] = "REDUCE",
    [COLL_GATHER] = "GATHER",
    [COLL_JOIN] = "JOIN",
    [COLL_SET_ADD] = "PROCESS_SET_ADD",
    [COLL_SET_REMOVE] = "PROCESS_SET_REMOVE",
    [COLL_SENDRECV] = "SENDRECV",
    [COLL_REGISTER] = "REGISTER",
    [COLL_PROBE] = "PROBE",
};

size_t dtype_size(enum dtype t)
{
    return (unsigned)t < DT_COUNT ? dtypes[t].size_bytes : 0;
}

const char *dtype_name(enum dtype t)
{
    return (unsigned)t < DT_COUNT ? dtypes[t].name : "unknown";
}

bool dtype_reducible(enum dtype t)
{
    return (unsigned)t < DT_COUNT;
}

const char *reduce_op_name(enum reduce_op op)
{
    return (unsigned)op < OP_COUNT ? op_names[op] : "unknown";
}

bool reduce_op_supported(enum reduce_op op)
{
    return (unsigned)op < OP_COUNT;
}

bool reduction_supported(enum reduce_op op, enum dtype t)
{
    if (!reduce_op_supported(op) || !dtype_reducible(t))
        return false;
    if (op == OP_ADASUM)
        return dtypes[t].is_float;
    return op != OP_AVERAGE || t != DT_BOOL;
}

const char *collective_name(enum collective c)
{
    return (unsigned)c < COLL_COUNT ? coll_names[c] : "unknown";
}

const char *memory_place_name(enum memory_place p)
{
    return p == PLACE_CUDA ? "GPU" : "CPU";
}
