/* SPDX-License-Identifier: Apache-2.0 */
/* One field, checked. A message names the field, its value and what is allowed. Called
 * by the decoders of HorovodJobs. */
#include "operator/core/hvd/hvd_fields.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "operator/core/quantity.h"

void field_wrong_type(struct strbuf *problems,
                      const char *path,
                      const char *name,
                      const struct node *n,
                      const char *want)
{
    strbuf_printf(problems, "%s.%s: must be %s, is %s\n", path, name, want,
                  node_type_name(n->type));
}

int64_t field_int(const struct node *o,
                  const char *path,
                  const char *name,
                  int64_t dflt,
                  int64_t min,
                  int64_t max,
                  struct strbuf *problems)
{
    const struct node *n = node_get(o, name);

    if (!n)
        return dflt;
    if (n->type != NODE_INT)
        field_wrong_type(problems, path, name, n, "an integer");
    else if (n->u.i < min)
        strbuf_printf(problems, "%s.%s: %" PRId64 " is below %" PRId64 "\n", path, name,
                      n->u.i, min);
    else if (n->u.i > max)
        strbuf_printf(problems, "%s.%s: %" PRId64 " is above %" PRId64 "\n", path, name,
                      n->u.i, max);
    else
        return n->u.i;
    return dflt;
}

bool field_bool(const struct node *o,
                const char *path,
                const char *name,
                bool dflt,
                struct strbuf *problems)
{
    const struct node *n = node_get(o, name);

    if (!n)
        return dflt;
    if (n->type == NODE_BOOL)
        return n->u.b;
    field_wrong_type(problems, path, name, n, "true or false");
    return dflt;
}

const char *field_text(const struct node *o,
                       const char *path,
                       const char *name,
                       const char *dflt,
                       struct strbuf *problems)
{
    const struct node *n = node_get(o, name);

    if (!n)
        return dflt;
    if (n->type != NODE_STRING)
        field_wrong_type(problems, path, name, n, "a string");
    else if (!*n->u.s)
        strbuf_printf(problems, "%s.%s: is empty\n", path, name);
    else
        return n->u.s;
    return dflt;
}

int field_choice(const struct node *o,
                 const char *path,
                 const char *name,
                 const char *const *names,
                 int dflt,
                 struct strbuf *problems)
{
    const struct node *n = node_get(o, name);

    if (!n)
        return dflt;
    if (n->type != NODE_STRING) {
        field_wrong_type(problems, path, name, n, "a string");
        return dflt;
    }
    for (int i = 0; names[i]; i++) {
        if (strcmp(names[i], n->u.s) == 0)
            return i;
    }
    strbuf_printf(problems, "%s.%s: \"%s\" is not one of ", path, name, n->u.s);
    for (int i = 0; names[i]; i++)
        strbuf_printf(problems, "%s%s", i ? ", " : "", names[i]);
    strbuf_putc(problems, '\n');
    return dflt;
}

int field_quantity(const struct node *o,
                   const char *path,
                   const char *name,
                   struct arena *a,
                   struct strbuf *problems,
                   const char **ret)
{
    const struct node *n = node_get(o, name);
    struct err err = ERR_INIT;
    struct quantity q;
    const char *text;

    *ret = NULL;
    if (!n)
        return 0;
    if (n->type != NODE_STRING && n->type != NODE_INT) {
        field_wrong_type(problems, path, name, n, "a quantity, for example 16Gi");
        return 0;
    }
    text = n->type == NODE_STRING ? n->u.s : arena_printf(a, "%" PRId64, n->u.i);
    if (!text)
        return -ENOMEM;
    if (quantity_parse(text, &q, &err) == 0)
        *ret = text;
    else
        strbuf_printf(problems, "%s.%s: %s\n", path, name, err.text);
    return 0;
}

const struct node *field_object(const struct node *o,
                                const char *path,
                                const char *name,
                                bool is_required,
                                struct strbuf *problems)
{
    const struct node *n = node_get(o, name);

    if (!n && is_required)
        strbuf_printf(problems, "%s.%s: missing\n", path, name);
    if (!n)
        return NULL;
    if (n->type == NODE_OBJECT)
        return n;
    field_wrong_type(problems, path, name, n, "an object");
    return NULL;
}

const struct node *field_list(const struct node *o,
                              const char *path,
                              const char *name,
                              size_t min,
                              size_t max,
                              struct strbuf *problems)
{
    const struct node *n = node_get(o, name);

    if (!n)
        return NULL;
    if (n->type != NODE_ARRAY)
        field_wrong_type(problems, path, name, n, "an array");
    else if (n->n < min)
        strbuf_printf(problems, "%s.%s: has %zu entries, needs at least %zu\n", path,
                      name, n->n, min);
    else if (n->n > max)
        strbuf_printf(problems, "%s.%s: has %zu entries, %zu are allowed\n", path, name,
                      n->n, max);
    else
        return n;
    return NULL;
}

void field_refuse_unknown(const struct node *o,
                          const char *path,
                          const char *const *known,
                          struct strbuf *problems)
{
    for (const struct node *c = o ? o->first : NULL; c; c = c->next) {
        size_t i = 0;

        if (c->type == NODE_NULL)
            continue;
        while (known[i] && strcmp(known[i], c->key) != 0)
            i++;
        if (!known[i])
            strbuf_printf(problems,
                          "%s.%s: is unknown to this version of hvd-operator\n", path,
                          c->key);
    }
}
