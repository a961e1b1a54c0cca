/* SPDX-License-Identifier: Apache-2.0 */
/* HVD_NANCHECK of device memory: the batch whose input is not finite is reported, on
 * the rank that has it, and nothing else changes. */
#include <math.h>

#include "tests/unit/gpu_members.h"

enum { N_ITEMS = 3, COUNT = 20000 };

static const struct device_ops *const row = &hvd_cuda_device_ops;

static int value_poke(struct device *g, float *v, size_t at, float x)
{
    struct gpu_scope scope;

    if (gpu_enter(g, &scope, NULL))
        return -EIO;
    int rc = g->cu->copy_up((cu_ptr)(uintptr_t)(v + at), &x, sizeof(x), g->streams[0]);
    gpu_leave(&scope);
    return rc;
}

static int post_checked(struct backend *b,
                        float *const *v,
                        enum dtype t,
                        uint64_t *ret_ticket,
                        struct err *err)
{
    struct batch_item items[N_ITEMS];
    struct batch batch = {.coll = COLL_ALLREDUCE,
                          .place = PLACE_CUDA,
                          .dtype = t,
                          .op = OP_SUM,
                          .prescale = 1,
                          .postscale = 1,
                          .items = items,
                          .n_items = N_ITEMS};

    for (int i = 0; i < N_ITEMS; i++)
        items[i] = (struct batch_item){.in = v[i], .out = v[i], .count = COUNT};
    int rc = row->post_check(b, &batch, err);
    return rc ? rc : b->ops->post(b, &batch, ret_ticket, err);
}

/* Both batches are done when the seat looks: the first ends well before the second is
 * told, else its tensors would be taken for those that are bad. */
static int two_at_once(struct device *g, struct backend *b, char *said)
{
    struct err err = ERR_INIT;
    float *v[2][N_ITEMS];
    struct device_event *e;
    uint64_t t[2], done = 0;
    int rc = 0;

    for (int i = 0; i < N_ITEMS; i++)
        for (int k = 0; k < 2; k++)
            HOLDS((v[k][i] = floats_new(g, COUNT, 1, &err)));
    HOLDS(value_poke(g, v[1][0], 5, NAN) == 0);
    for (int k = 0; k < 2; k++)
        HOLDS(post_checked(b, v[k], DT_F32, &t[k], &err) == 0);
    HOLDS((e = row->ticket_event(b, t[1])));
    while (rc == 0) {
        struct gpu_scope scope;

        HOLDS(gpu_enter(g, &scope, &err) == 0);
        rc = event_is_done(e, &err);
        gpu_leave(&scope);
        (void)usleep(100);
    }
    HOLDS(rc == 1);
    row->event_unref(e);
    HOLDS(b->ops->poll(b, &done, &err) == 0 && done == t[0]);
    HOLDS(b->ops->poll(b, &done, &err) == -EDOM);
    for (int i = 0; i < N_ITEMS; i++)
        for (int k = 0; k < 2; k++)
            row->free(v[k][i], g->streams[0]);
    return 0;
}

static int member_runs_rounds(struct device *g, struct backend *b, char *said)
{
    struct err err = ERR_INIT;
    struct nonfinite bad;
    float *v[N_ITEMS];
    uint64_t ticket;
    size_t item;

    for (int i = 0; i < N_ITEMS; i++)
        HOLDS((v[i] = floats_new(g, COUNT, 1, &err)));
    HOLDS(post_checked(b, v, DT_F32, &ticket, &err) == 0);
    HOLDS(wait_ticket(b, ticket, 20, &err) == 0);
    HOLDS(row->bad_item(b, &item, &bad) == -ENOENT);
    if (g->config.rank == 1) {
        HOLDS(value_poke(g, v[2], 77, NAN) == 0);
        HOLDS(value_poke(g, v[2], 15000, INFINITY) == 0);
    }
    HOLDS(post_checked(b, v, DT_F32, &ticket, &err) == 0);
    HOLDS(wait_ticket(b, ticket, 20, &err) == (g->config.rank == 1 ? -EDOM : 0));
    HOLDS(row->bad_item(b, &item, &bad) == (g->config.rank == 1 ? 0 : -ENOENT));
    if (g->config.rank == 1) {
        HOLDS(strcmp(err.text, "tensor 2 of a batch has NaN at 77") == 0);
        HOLDS(item == 2 && bad.at == 77 && bad.is_nan && bad.n == 2);
    }
    /* integers are never looked at; the device is well */
    HOLDS(post_checked(b, v, DT_I32, &ticket, &err) == 0);
    HOLDS(wait_ticket(b, ticket, 20, &err) == 0);
    HOLDS(value_poke(g, v[0], COUNT - 1, -INFINITY) == 0);
    HOLDS(post_checked(b, v, DT_F32, &ticket, &err) == 0);
    HOLDS(wait_ticket(b, ticket, 20, &err) == -EDOM);
    HOLDS(row->bad_item(b, &item, &bad) == 0);
    HOLDS(item == 0 && bad.at == COUNT - 1 && !bad.is_nan && bad.n == 1);
    HOLDS(post_checked(b, v, DT_F32, &ticket, &err) == 0); /* its result is not read */
    HOLDS(launcher_drain(&g->launcher, clock_now_ns() + 20 * NS_PER_S) == 0);
    for (int i = 0; i < N_ITEMS; i++)
        row->free(v[i], g->streams[0]);
    return 0;
}

/* A batch is done, and the one behind it hangs, as where a peer has died: the seat is
 * told of the first, and waits for nothing. */
static int with_a_hang(struct device *g, struct backend *b, char *said)
{
    struct err err = ERR_INIT;
    struct device_event *e;
    float *v[N_ITEMS];
    uint64_t ticket;

    for (int i = 0; i < N_ITEMS; i++)
        HOLDS((v[i] = floats_new(g, COUNT, 1, &err)));
    HOLDS(post_checked(b, v, DT_F32, &ticket, &err) == 0);
    HOLDS((e = row->ticket_event(b, ticket)));
    HOLDS(event_wait_recorded(e, clock_now_ns() + 20 * NS_PER_S) == 0);
    row->event_unref(e);
    HOLDS(gate_close(g, &err) == 0);
    HOLDS(wait_ticket(b, ticket, 20, &err) == 0); /* else this never returns */
    atomic_store(&gate_is_open, true);
    for (int i = 0; i < N_ITEMS; i++)
        row->free(v[i], g->streams[0]);
    return 0;
}

static int (*the_body)(struct device *g,
                       struct backend *b,
                       char *said) = member_runs_rounds;

static int
nancheck_body(struct backend *meeting, uint32_t me, struct party *p, char *said)
{
    const struct device_config config = case_config(me, p->size);
    const struct backend_env env = {.rank = me, .size = p->size};
    struct err err = ERR_INIT;
    struct device *g;
    struct backend *b;

    if (row->open(&config, (int)me, &g, &err)
        || row->comm_open(g, meeting, &env, case_ranks, &b, &err))
        return SAYS("open: %s", err.text);
    int rc = the_body(g, b, said);
    b->ops->close(b);
    return row->close(g, NULL) && !rc ? SAYS("close") : rc;
}

UNIT_TEST(the_tensor_and_the_place_are_reported)
{
    run_case(&(struct gpu_case){.n = 2, .row_body = nancheck_body});
    run_case(&(struct gpu_case){.n = 1, .row_body = nancheck_body});
}

UNIT_TEST(earlier_batches_are_reported_before)
{
    the_body = two_at_once;
    run_case(&(struct gpu_case){.n = 2, .row_body = nancheck_body});
    the_body = member_runs_rounds;
}

UNIT_TEST(looking_does_not_wait_for_the_device)
{
    the_body = with_a_hang;
    run_case(&(struct gpu_case){.n = 1, .row_body = nancheck_body});
    the_body = member_runs_rounds;
}

UNIT_MAIN(NULL, NULL)
