/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a job, from the records that worker 0's agent or the launcher keeps. */
#include "operator/cli/core/job_view.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"

static double number_of(const struct node *o, const char *key)
{
    const struct node *n = node_get(o, key);

    if (!n)
        return -1;
    return n->type == NODE_INT ? (double)n->u.i : n->type == NODE_REAL ? n->u.d : -1;
}

static void
put_share(struct build *b, struct node *o, const char *key, double part, double of)
{
    if (part >= 0 && of > 0)
        node_set(b, o, key, node_real(b, part / of));
}

/* Rates are means since the world began on the rank: the records are counters. */
struct node *
top_tree(struct build *b, const struct job_view *v, const struct node *ranks)
{
    const struct node *list =
        node_get(ranks, "ranks") ? node_get(ranks, "ranks") : ranks;
    struct node *all = node_array(b);

    for (const struct node *r = list ? list->first : NULL; r; r = r->next) {
        static const char *const copied[] = {
            "rank",       "state",         "pid",           "steps",
            "cpuSeconds", "residentBytes", "stoppedSeconds"};
        struct node *o = node_object(b);
        double age_s = number_of(r, "age"), steps = number_of(r, "steps");

        for (size_t i = 0; i < ARRAY_LEN(copied); i++) {
            if (node_get(r, copied[i]))
                node_set(b, o, copied[i], node_copy(b, node_get(r, copied[i])));
        }
        if (!v->is_elastic) /* else it may be on any worker */
            node_set_int(b, o, "worker",
                         node_int(r, "rank", 0) / (int64_t)(v->slots ? v->slots : 1));
        put_share(b, o, "stepsPerSecond", steps, age_s);
        put_share(b, o, "cores", number_of(r, "cpuSeconds"), age_s);
        put_share(b, o, "blocked", number_of(r, "blockedNanoseconds") / 1e9, age_s);
        node_add(b, all, o);
    }
    return b->status ? NULL : all;
}

static void cell_real(struct show_table *t,
                      const struct node *o,
                      const char *key,
                      double by,
                      const char *format)
{
    double d = number_of(o, key);
    char text[48];

    if (d < 0) {
        table_cell(t, NULL, TINT_NONE);
        return;
    }
    if (strcmp(format, "%") == 0)
        (void)snprintf(text, sizeof(text), "%.0f%%", d * by);
    else if (strcmp(format, "Mi") == 0)
        (void)snprintf(text, sizeof(text), "%.0fMi", d * by);
    else
        (void)snprintf(text, sizeof(text), "%.2f", d * by);
    table_cell(t, text, TINT_NONE);
}

void top_table(struct show_table *t, const struct node *tree, bool is_wide)
{
    static const char *const heads[] = {"RANK",   "WORKER", "STATE",   "CPU",
                                        "MEMORY", "STEPS",  "STEPS/S", "WAITS"};

    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        table_head(t, heads[i]);
    if (is_wide)
        table_head(t, "PID");
    for (const struct node *o = tree ? tree->first : NULL; o; o = o->next) {
        table_row(t);
        table_cell(t, node_text(t->arena, o, "rank"), TINT_NONE);
        table_cell(t, node_text(t->arena, o, "worker"), TINT_NONE);
        if (number_of(o, "stoppedSeconds") > 0) /* by SIGSTOP or a debugger */
            table_cell(t, "Stopped", TINT_BAD);
        else
            table_cell(t, node_str(o, "state"), TINT_NONE);
        cell_real(t, o, "cores", 1, "");
        cell_real(t, o, "residentBytes", 1.0 / 1048576, "Mi");
        table_cell(t, node_text(t->arena, o, "steps"), TINT_NONE);
        cell_real(t, o, "stepsPerSecond", 1, "");
        cell_real(t, o, "blocked", 100, "%");
        if (is_wide)
            table_cell(t, node_text(t->arena, o, "pid"), TINT_NONE);
    }
}
