/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.h: one operation of one graph (or one kind of eager call), as TensorFlow
 * created it: its attributes and its name. Constant after kernel_create(). */
#ifndef RUNTIME_TENSORFLOW_KERNEL_H
#define RUNTIME_TENSORFLOW_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

struct TF_OpKernelConstruction;
struct numbers;

enum kind {
    KIND_ALLREDUCE,
    KIND_ALLGATHER,
    KIND_BROADCAST,
    KIND_ALLTOALL,
    KIND_REDUCESCATTER,
    KIND_JOIN,
    KIND_BARRIER,
    KIND_COUNT
};

/* The kind of an operation of TensorFlow; a constant. */
struct op_type {
    const char *word; /* prefix of the names of its tensors: "grouped_allreduce" */
    enum kind kind;
    bool is_grouped;
};

#define KERNEL_NAME_MAX 448 /* room for "_12of345" and "#7" below the runtime's 511 */
#define CODEC_NAME_MAX  64

struct tf_kernel {
    const struct op_type *type;
    int32_t reduce_op, root_rank, process_set;
    double prescale, postscale;
    bool is_eager, is_blocking, has_compression;
    bool is_on_gpu; /* except tensors that hvd_tf.c keeps in host memory */
    char compression[CODEC_NAME_MAX];
    char name[KERNEL_NAME_MAX]; /* "" when eager without a name */
    struct numbers *numbers;    /* then; else NULL */
};

/* NULL after the construction's status was set. */
struct tf_kernel *kernel_create(struct TF_OpKernelConstruction *c,
                                const struct op_type *type,
                                bool is_on_gpu);
void kernel_free(struct tf_kernel *k); /* accepts NULL */

#endif
