/* SPDX-License-Identifier: Apache-2.0 */
/* Element types, operations and their names, shared by API, core and backends. The
 * values are wire and API values (hvd.h repeats them) and never change. */
#ifndef RUNTIME_CORE_TYPES_H
#define RUNTIME_CORE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype { /* Horovod's order, bfloat16 appended */
             DT_U8,
             DT_I8,
             DT_U16,
             DT_I16,
             DT_I32,
             DT_I64,
             DT_F16,
             DT_F32,
             DT_F64,
             DT_BOOL,
             DT_BF16,
             DT_COUNT
};
enum reduce_op { OP_AVERAGE, OP_SUM, OP_ADASUM, OP_MIN, OP_MAX, OP_PRODUCT, OP_COUNT };
/* Where a tensor's memory is. */
enum memory_place { PLACE_HOST, PLACE_CUDA, PLACE_COUNT };
enum collective {
    COLL_ALLREDUCE,
    COLL_ALLGATHER, /* uneven dimension 0 allowed */
    COLL_BROADCAST,
    COLL_BARRIER,
    COLL_ALLTOALL,      /* rows of dimension 0, uneven allowed */
    COLL_REDUCESCATTER, /* rows of dimension 0: the first dim0 % n members get one more
                         */
    COLL_REDUCE,        /* as allreduce; only root's output */
    COLL_GATHER,        /* as allgather; only root's output */
    COLL_JOIN,    /* no more data: contributes zeros until all ranks have joined */
    COLL_SET_ADD, /* a new process set; all ranks of the world */
    COLL_SET_REMOVE,
    COLL_SENDRECV, /* from root to the other rank of a pair (pair.h) */
    COLL_REGISTER, /* registers GPU memory, or deregisters it */
    COLL_PROBE,    /* which rank sends to this one (pair.h)? */
    COLL_COUNT
};

#define TENSOR_MAX_DIMS 8
#define TENSOR_NAME_MAX 512

size_t dtype_size(enum dtype t);                /* bytes; 0 for a value out of range */
const char *dtype_name(enum dtype t);           /* "float32" */
const char *reduce_op_name(enum reduce_op op);  /* "SUM" */
const char *collective_name(enum collective c); /* "ALLREDUCE" */
const char *memory_place_name(enum memory_place p); /* "CPU", "GPU" */
/* Is the value in range? Every known type is reduced by some operation. */
bool dtype_reducible(enum dtype t);
bool reduce_op_supported(enum reduce_op op);
/* Can tensors of this type be reduced by this operation? All but AVERAGE of bool and
 * ADASUM of anything but floating point. False for values out of range. */
bool reduction_supported(enum reduce_op op, enum dtype t);

#endif
