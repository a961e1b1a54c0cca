/* SPDX-License-Identifier: Apache-2.0 */
/* Conditions of an MPIJob.
 *
 *   set                                 effect
 *   same status and reason              none
 *   same status, other reason           replaced, lastTransitionTime kept
 *   other status, or a new condition    replaced or added, all times now
 *
 * A condition that is replaced or added moves to the end: readers take the last one as
 * the latest.
 *
 *   setting            effect on others
 *   Succeeded, Failed  Running and Failed become False; their times and reasons stay
 *   Running            removes Restarting
 *   Restarting         removes Running
 *
 * Pure; called by mpi_status.c. */
#include "operator/core/mpi/mpi_conditions.h"

#include <string.h>

static const char *condition_get_text(const struct node *o, const char *key)
{
    const char *s = node_str(o, key);

    return s ? s : "";
}

void mpi_conditions_load(struct mpi_conditions *c, const struct node *status)
{
    const struct node *list = node_get(status, "conditions");

    c->n = 0;
    for (const struct node *o = list ? list->first : NULL; o; o = o->next) {
        if (c->n == MPI_MAX_CONDITIONS || !node_str(o, "type"))
            continue;
        c->v[c->n++] = (struct mpi_condition){
            .type = condition_get_text(o, "type"),
            .status = condition_get_text(o, "status"),
            .reason = condition_get_text(o, "reason"),
            .message = condition_get_text(o, "message"),
            .updated = condition_get_text(o, "lastUpdateTime"),
            .since = condition_get_text(o, "lastTransitionTime"),
        };
    }
}

const struct mpi_condition *mpi_conditions_find(const struct mpi_conditions *c,
                                                const char *type)
{
    for (size_t i = 0; i < c->n; i++) {
        if (strcmp(c->v[i].type, type) == 0)
            return &c->v[i];
    }
    return NULL;
}

bool mpi_conditions_is_true(const struct mpi_conditions *c, const char *type)
{
    const struct mpi_condition *x = mpi_conditions_find(c, type);

    return x && strcmp(x->status, "True") == 0;
}

static bool type_is_one_of(const char *s, const char *a, const char *b)
{
    return strcmp(s, a) == 0 || strcmp(s, b) == 0;
}

static bool condition_displaces(const char *type, const char *other)
{
    return strcmp(type, other) == 0
           || (strcmp(type, "Running") == 0 && strcmp(other, "Restarting") == 0)
           || (strcmp(type, "Restarting") == 0 && strcmp(other, "Running") == 0);
}

bool mpi_conditions_set(struct mpi_conditions *c,
                        const char *type,
                        bool is_true,
                        const char *reason,
                        const char *message,
                        const char *now)
{
    const struct mpi_condition *old = mpi_conditions_find(c, type);
    struct mpi_condition x = {.type = type,
                              .status = is_true ? "True" : "False",
                              .reason = reason,
                              .message = message,
                              .updated = now,
                              .since = now};
    bool is_end = type_is_one_of(type, "Succeeded", "Failed");
    size_t n = 0;

    if (old && strcmp(old->status, x.status) == 0) {
        if (strcmp(old->reason, reason) == 0)
            return false;
        x.since = old->since;
    }
    for (size_t i = 0; i < c->n; i++) {
        if (condition_displaces(type, c->v[i].type))
            continue;
        c->v[n] = c->v[i];
        if (is_end && type_is_one_of(c->v[n].type, "Running", "Failed"))
            c->v[n].status = "False";
        n++;
    }
    if (n == MPI_MAX_CONDITIONS) /* foreign ones only; the operator has at most eight */
        n--;
    c->v[n++] = x;
    c->n = n;
    return true;
}

void mpi_conditions_reword(struct mpi_conditions *c,
                           const char *type,
                           const char *message,
                           const char *now)
{
    for (size_t i = 0; i < c->n; i++) {
        struct mpi_condition *x = &c->v[i];

        if (strcmp(x->type, type) != 0 || strcmp(x->message, message) == 0)
            continue;
        x->message = message;
        x->updated = now;
    }
}

/* A foreign condition without a time stays without: "" means none. */
static void
conditions_put_time(struct build *b, struct node *o, const char *key, const char *s)
{
    if (*s)
        node_set_str(b, o, key, s);
}

struct node *mpi_conditions_node(struct build *b, const struct mpi_conditions *c)
{
    struct node *list = node_array(b);

    for (size_t i = 0; i < c->n; i++) {
        struct node *o = node_object(b);

        node_set_str(b, o, "type", c->v[i].type);
        node_set_str(b, o, "status", c->v[i].status);
        node_set_str(b, o, "reason", c->v[i].reason);
        node_set_str(b, o, "message", c->v[i].message);
        conditions_put_time(b, o, "lastUpdateTime", c->v[i].updated);
        conditions_put_time(b, o, "lastTransitionTime", c->v[i].since);
        node_add(b, list, o);
    }
    return list;
}
