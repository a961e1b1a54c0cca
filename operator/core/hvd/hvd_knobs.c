/* SPDX-License-Identifier: Apache-2.0 */
/* spec.horovod -> values of environment variables, by the table in hvd_knobs.h. Called
 * by hvd_decode.c. */
#include "operator/core/hvd/hvd_knobs.h"

#include <errno.h>
#include <inttypes.h>

#include "operator/core/hvd/hvd_fields.h"
#include "runtime/base/mem.h"

#define PATH "spec.horovod"

enum kind { WHOLE, MIB, NUMBER, SWITCH, TEXT, LEVEL };

static const struct {
    const char *field, *variable;
    enum kind kind;
    int64_t min, max;
} rows[] = {
#define ROW(id, field, variable, kind, min, max)                                       \
    [KNOB_##id] = {field, variable, kind, min, max},
    HVD_KNOBS(ROW)
#undef ROW
};
_Static_assert(ARRAY_LEN(rows) == KNOB_COUNT, "one row per knob");

static const char *const levels[] = {"trace", "debug", "info", "warning",
                                     "error", "fatal", NULL};

const char *hvd_knob_variable(enum hvd_knob k)
{
    return rows[k].variable;
}

/* A number, with or without a fraction. */
static const char *knob_read_number(const struct node *o,
                                    enum hvd_knob k,
                                    struct arena *a,
                                    struct strbuf *p)
{
    const struct node *n = node_get(o, rows[k].field);

    if (n->type != NODE_REAL) {
        int64_t i = field_int(o, PATH, rows[k].field, -1, rows[k].min, rows[k].max, p);

        return i < 0 ? "" : arena_printf(a, "%" PRId64, i);
    }
    if (n->u.d >= (double)rows[k].min && n->u.d <= (double)rows[k].max)
        return arena_printf(a, "%g", n->u.d);
    strbuf_printf(p, PATH ".%s: %g is not from %" PRId64 " to %" PRId64 "\n",
                  rows[k].field, n->u.d, rows[k].min, rows[k].max);
    return "";
}

static const char *knob_read_integer(const struct node *o,
                                     enum hvd_knob k,
                                     struct arena *a,
                                     struct strbuf *p)
{
    int64_t i = field_int(o, PATH, rows[k].field, -1, rows[k].min, rows[k].max, p);
    int64_t unit = rows[k].kind == MIB ? INT64_C(1) << 20 : 1;

    return i < 0 ? "" : arena_printf(a, "%" PRId64, i * unit);
}

/* "" if it was refused, NULL if memory is out. */
static const char *knob_read_value(const struct node *o,
                                   enum hvd_knob k,
                                   struct arena *a,
                                   struct strbuf *p)
{
    const char *field = rows[k].field;
    int i;

    switch (rows[k].kind) {
    case WHOLE:
    case MIB:
        return knob_read_integer(o, k, a, p);
    case NUMBER:
        return knob_read_number(o, k, a, p);
    case SWITCH:
        return field_bool(o, PATH, field, false, p) ? "1" : "0";
    case TEXT:
        return field_text(o, PATH, field, "", p);
    case LEVEL:
        i = field_choice(o, PATH, field, levels, -1, p);
        return i < 0 ? "" : levels[i];
    }
    return "";
}

int hvd_knobs_decode(const struct node *o,
                     struct arena *a,
                     const char *ret[KNOB_COUNT],
                     struct strbuf *problems)
{
    const char *known[KNOB_COUNT + 1] = {NULL};

    for (int k = 0; k < KNOB_COUNT; k++) {
        known[k] = rows[k].field;
        ret[k] = NULL;
        if (!node_get(o, rows[k].field))
            continue;
        ret[k] = knob_read_value(o, (enum hvd_knob)k, a, problems);
        if (!ret[k])
            return -ENOMEM;
        if (!*ret[k])
            ret[k] = NULL;
    }
    field_refuse_unknown(o, PATH, known, problems);
    return 0;
}
