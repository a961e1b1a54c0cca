/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.c: reads an operation's attributes and gives it its name.
 *
 * Names. A collective needs one name on all ranks. In a graph it is the node's name:
 * unique there, and equal on all ranks that build the same graph. ignore_name_scope
 * drops everything before the last '/'. The numbers that TensorFlow puts into names in
 * branches and loops ("cond/then/_9/x") are dropped, because they count everything that
 * a rank runs, such as the summaries of rank 0. Eagerly all nodes have the same name,
 * so Python passes the user's in tensor_name; without one, numbers.c numbers the
 * operations under way. A prefix keeps kinds apart. Called by hvd_tf.c. */
#include "runtime/tensorflow/kernel.h"

#include <stdlib.h>
#include <string.h>

#include "hvd.h"
#include "runtime/tensorflow/name.h"
#include "runtime/tensorflow/numbers.h"
#include "runtime/tensorflow/tf_c_api.h"

/* --- attributes --- */

struct attr_reader { /* reads attributes until the first that fails */
    struct TF_OpKernelConstruction *c;
    struct TF_Status *s;
};

/* Whether the operation has the attribute and nothing has failed yet. */
static bool attr_reader_has(const struct attr_reader *r, const char *attr)
{
    return TF_GetCode(r->s) == TF_OK
           && TF_OpKernelConstruction_HasAttr(r->c, attr, r->s)
           && TF_GetCode(r->s) == TF_OK;
}

static void read_int(const struct attr_reader *r, const char *attr, int32_t *ret)
{
    if (attr_reader_has(r, attr))
        TF_OpKernelConstruction_GetAttrInt32(r->c, attr, ret, r->s);
}

static void read_bool(const struct attr_reader *r, const char *attr, bool *ret)
{
    unsigned char value = 0;

    if (!attr_reader_has(r, attr))
        return;
    TF_OpKernelConstruction_GetAttrBool(r->c, attr, &value, r->s);
    *ret = value != 0;
}

/* A double, passed as its bits: TensorFlow's attributes are floats. */
static void read_double(const struct attr_reader *r, const char *attr, double *ret)
{
    int64_t bits = 0;

    if (!attr_reader_has(r, attr))
        return;
    TF_OpKernelConstruction_GetAttrInt64(r->c, attr, &bits, r->s);
    memcpy(ret, &bits, sizeof(*ret));
}

/* A new string, "" when the operation has no such attribute; NULL after a failure. */
static char *read_text(const struct attr_reader *r, const char *attr)
{
    int32_t list_size = 0, length = 0;
    char *text;

    if (attr_reader_has(r, attr))
        TF_OpKernelConstruction_GetAttrSize(r->c, attr, &list_size, &length, r->s);
    if (TF_GetCode(r->s) != TF_OK)
        return NULL;
    text = calloc((size_t)length + 1, 1);
    if (!text)
        TF_SetStatus(r->s, TF_RESOURCE_EXHAUSTED, "out of memory for an attribute");
    else if (length > 0)
        TF_OpKernelConstruction_GetAttrString(r->c, attr, text, (size_t)length, r->s);
    return text;
}

static void read_compression(const struct attr_reader *r, struct tf_kernel *k)
{
    char *given = read_text(r, "compression");

    if (given && given[0]) {
        k->has_compression = true;
        if (strlen(given) < sizeof(k->compression))
            memcpy(k->compression, given, strlen(given) + 1);
        else
            TF_SetStatus(r->s, TF_INVALID_ARGUMENT,
                         "compression: is longer than 63 bytes");
    }
    free(given);
}

static void read_node_name(const struct attr_reader *r, struct tf_kernel *k)
{
    struct tf_string_view node = TF_OpKernelConstruction_GetName(r->c);
    char *name = malloc(node.len + 1);
    bool ignore_scope = false;
    size_t length, skip;

    read_bool(r, "ignore_name_scope", &ignore_scope);
    if (!name) {
        TF_SetStatus(r->s, TF_RESOURCE_EXHAUSTED, "out of memory for an operation");
        return;
    }
    length = name_stable(name, node.data, node.len);
    skip = ignore_scope ? name_scope_length(name, length) : 0;
    name_make(k->name, sizeof(k->name), k->type->word, name + skip, length - skip);
    free(name);
}

static void read_name(const struct attr_reader *r, struct tf_kernel *k)
{
    char *given = read_text(r, "tensor_name");

    if (!given)
        return;
    if (given[0])
        name_make(k->name, sizeof(k->name), k->type->word, given, strlen(given));
    else if (!k->is_eager)
        read_node_name(r, k);
    else if (!(k->numbers = numbers_of(k->type, k->process_set)))
        TF_SetStatus(r->s, TF_RESOURCE_EXHAUSTED, "out of memory for an operation");
    free(given);
}

struct tf_kernel *kernel_create(struct TF_OpKernelConstruction *c,
                                const struct op_type *type,
                                bool is_on_gpu)
{
    struct attr_reader r = {.c = c, .s = TF_NewStatus()};
    struct tf_kernel *k = calloc(1, sizeof(*k));

    if (!k) {
        TF_SetStatus(r.s, TF_RESOURCE_EXHAUSTED, "out of memory for an operation");
    } else {
        k->type = type;
        k->is_on_gpu = is_on_gpu;
        k->prescale = k->postscale = 1.0;
        k->reduce_op = HVD_SUM;
        read_int(&r, "reduce_op", &k->reduce_op);
        read_int(&r, "root_rank", &k->root_rank);
        read_int(&r, "process_set_id", &k->process_set);
        read_double(&r, "prescale_bits", &k->prescale);
        read_double(&r, "postscale_bits", &k->postscale);
        read_bool(&r, "eager", &k->is_eager);
        read_bool(&r, "blocking", &k->is_blocking);
        read_compression(&r, k);
        read_name(&r, k);
    }
    if (TF_GetCode(r.s) != TF_OK) {
        TF_OpKernelConstruction_Failure(c, r.s);
        kernel_free(k);
        k = NULL;
    }
    TF_DeleteStatus(r.s);
    return k;
}

void kernel_free(struct tf_kernel *k)
{
    free(k);
}
