/* SPDX-License-Identifier: Apache-2.0 */
/* shapes.c: shape functions of the operations. The number of rows of an allgather,
 * alltoall or reducescatter depends on other ranks, so dimension 0 stays open; the
 * others are the input's. Called by TensorFlow for each node of a graph. */
#include "runtime/tensorflow/shapes.h"

#include "runtime/tensorflow/tf_c_api.h"

#define UNKNOWN ((size_t)-1) /* TensorFlow's -1: an unknown dimension */

void shape_as_input(struct TF_ShapeInferenceContext *c, struct TF_Status *s)
{
    struct TF_ShapeHandle *shape = TF_NewShapeHandle();
    int64_t n = TF_ShapeInferenceContextNumInputs(c);

    for (int i = 0; i < n && TF_GetCode(s) == TF_OK; i++) {
        TF_ShapeInferenceContextGetInput(c, i, shape, s);
        if (TF_GetCode(s) == TF_OK)
            TF_ShapeInferenceContextSetOutput(c, i, shape, s);
    }
    TF_DeleteShapeHandle(shape);
}

/* Output i: input i with an open dimension 0. */
static void set_rows(struct TF_ShapeInferenceContext *c, int i, struct TF_Status *s)
{
    struct TF_ShapeHandle *in = TF_NewShapeHandle(), *rest = TF_NewShapeHandle();
    struct TF_ShapeHandle *out = TF_NewShapeHandle();
    struct TF_ShapeHandle *rows = TF_ShapeInferenceContextVectorFromSize(c, UNKNOWN);

    TF_ShapeInferenceContextGetInput(c, i, in, s);
    if (TF_GetCode(s) == TF_OK && TF_ShapeInferenceContextRankKnown(c, in)) {
        TF_ShapeInferenceContextWithRankAtLeast(c, in, 1, in, s);
        if (TF_GetCode(s) == TF_OK)
            TF_ShapeInferenceContextSubshape(
                c, in, 1, TF_ShapeInferenceContextRank(c, in), rest, s);
        if (TF_GetCode(s) == TF_OK)
            TF_ShapeInferenceContextConcatenateShapes(c, rows, rest, out, s);
        if (TF_GetCode(s) == TF_OK)
            TF_ShapeInferenceContextSetOutput(c, i, out, s);
    } else if (TF_GetCode(s) == TF_OK) {
        TF_ShapeInferenceContextSetOutput(c, i, in, s); /* of unknown rank too */
    }
    TF_DeleteShapeHandle(rows);
    TF_DeleteShapeHandle(out);
    TF_DeleteShapeHandle(rest);
    TF_DeleteShapeHandle(in);
}

void shape_of_rows(struct TF_ShapeInferenceContext *c, struct TF_Status *s)
{
    int64_t n = TF_ShapeInferenceContextNumInputs(c);

    for (int i = 0; i < n && TF_GetCode(s) == TF_OK; i++)
        set_rows(c, i, s);
}

static void set_and_free(struct TF_ShapeInferenceContext *c,
                         int i,
                         struct TF_ShapeHandle *shape,
                         struct TF_Status *s)
{
    TF_ShapeInferenceContextSetOutput(c, i, shape, s);
    TF_DeleteShapeHandle(shape);
}

void shape_of_alltoall(struct TF_ShapeInferenceContext *c, struct TF_Status *s)
{
    set_rows(c, 0, s);
    if (TF_GetCode(s) == TF_OK)
        set_and_free(c, 1, TF_ShapeInferenceContextVectorFromSize(c, UNKNOWN), s);
}

void shape_scalar(struct TF_ShapeInferenceContext *c, struct TF_Status *s)
{
    set_and_free(c, 0, TF_ShapeInferenceContextScalar(c), s);
}

void shape_none(struct TF_ShapeInferenceContext *c, struct TF_Status *s)
{
    (void)c;
    TF_SetStatus(s, TF_OK, "");
}
