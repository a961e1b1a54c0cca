/* SPDX-License-Identifier: Apache-2.0 */
/* shapes.h: shapes of the outputs, as far as they are known while a graph is built. */
#ifndef RUNTIME_TENSORFLOW_SHAPES_H
#define RUNTIME_TENSORFLOW_SHAPES_H

struct TF_ShapeInferenceContext;
struct TF_Status;

/* Output i has the shape of input i: allreduce, broadcast. */
void shape_as_input(struct TF_ShapeInferenceContext *c, struct TF_Status *s);
/* The same with an unknown dimension 0; scalars are refused: allgather,
 * reducescatter. */
void shape_of_rows(struct TF_ShapeInferenceContext *c, struct TF_Status *s);
/* Output 0 as above, output 1 a vector: alltoall. */
void shape_of_alltoall(struct TF_ShapeInferenceContext *c, struct TF_Status *s);
/* One scalar: size, rank, join. */
void shape_scalar(struct TF_ShapeInferenceContext *c, struct TF_Status *s);
/* No output: barrier. */
void shape_none(struct TF_ShapeInferenceContext *c, struct TF_Status *s);

#endif
