/* SPDX-License-Identifier: Apache-2.0 */
/* HVD_NANCHECK of device memory: the batch whose input is not finite is reported, on
 * the rank that has it, and nothing else changes. */
#include <math.h>

#include "tests/unit/gpu_members.h"

/* Tensors of COUNT elements, APART elements from each other. */
enum { N_ITEMS = 3, COUNT = 20000, APART = COUNT + 4 };

static int value_poke(struct device *g, float *v, size_t at, float x)
{
    struct gpu_scope scope;

    if (gpu_enter(g, &scope, NULL))
        return -EIO;
    int rc = g->cu->copy_up((cu_ptr)(uintptr_t)(v + at), &x, sizeof(x), g->streams[0]);
    gpu_leave(&scope);
    return rc;
}

static int post_checked(
    struct backend *b, float *v, enum dtype t, uint64_t *ret_ticket, struct err *err)
{
    struct batch_item items[N_ITEMS];
    struct batch batch = batch_of(items, N_ITEMS);

    batch.dtype = t;
    for (int i = 0; i < N_ITEMS; i++)
        items[i] = (struct batch_item){
            .in = v + i * APART, .out = v + i * APART, .count = COUNT};
    int rc = row->post_check(b, &batch, err);
    return rc ? rc : b->ops->post(b, &batch, ret_ticket, err);
}

/* Both batches are done when the seat looks: the first is reported
 * before the second, else its tensors would be taken for those that are bad. */
ROW_TEST(earlier_batches_are_reported_before, .n = 2)
{
    struct err err = ERR_INIT;
    float *v[2];
    struct device_event *e;
    uint64_t t[2], done = 0;
    int rc = 0;

    for (int k = 0; k < 2; k++)
        HOLDS((v[k] = floats_new(g, N_ITEMS * APART, 1, &err)));
    HOLDS(value_poke(g, v[1], 5, NAN) == 0);
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
    for (int k = 0; k < 2; k++)
        row->free(v[k], g->streams[0]);
    return 0;
}

ROW_BODY(member_runs_rounds)
{
    struct err err = ERR_INIT;
    struct nonfinite bad;
    float *v;
    uint64_t ticket;
    size_t item;

    HOLDS((v = floats_new(g, N_ITEMS * APART, 1, &err)));
    HOLDS(post_checked(b, v, DT_F32, &ticket, &err) == 0);
    HOLDS(wait_ticket(b, ticket, 20, &err) == 0);
    HOLDS(row->bad_item(b, &item, &bad) == -ENOENT);
    if (g->config.rank == 1) {
        HOLDS(value_poke(g, v, 2 * APART + 77, NAN) == 0);
        HOLDS(value_poke(g, v, 2 * APART + 15000, INFINITY) == 0);
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
    HOLDS(value_poke(g, v, COUNT - 1, -INFINITY) == 0);
    HOLDS(post_checked(b, v, DT_F32, &ticket, &err) == 0);
    HOLDS(wait_ticket(b, ticket, 20, &err) == -EDOM);
    HOLDS(row->bad_item(b, &item, &bad) == 0);
    HOLDS(item == 0 && bad.at == COUNT - 1 && !bad.is_nan && bad.n == 1);
    HOLDS(post_checked(b, v, DT_F32, &ticket, &err) == 0); /* its result is not read */
    HOLDS(launcher_drain(&g->launcher, clock_now_ns() + 20 * NS_PER_S) == 0);
    row->free(v, g->streams[0]);
    return 0;
}

/* A batch is done, and the next one hangs, as after the death of a peer: the seat
 * receives the result of the first and does not wait for the device. */
ROW_TEST(looking_does_not_wait_for_the_device, .n = 1)
{
    struct err err = ERR_INIT;
    struct device_event *e;
    float *v;
    uint64_t ticket;

    HOLDS((v = floats_new(g, N_ITEMS * APART, 1, &err)));
    HOLDS(post_checked(b, v, DT_F32, &ticket, &err) == 0);
    HOLDS((e = row->ticket_event(b, ticket)));
    HOLDS(event_wait_recorded(e, clock_now_ns() + 20 * NS_PER_S) == 0);
    row->event_unref(e);
    HOLDS(gate_close(g, &err) == 0);
    HOLDS(wait_ticket(b, ticket, 20, &err) == 0); /* else this never returns */
    atomic_store(&gate_is_open, true);
    row->free(v, g->streams[0]);
    return 0;
}

UNIT_TEST(the_tensor_and_the_place_are_reported)
{
    RUN_CASE(.n = 2, .row_body = member_runs_rounds);
    RUN_CASE(.n = 1, .row_body = member_runs_rounds);
}

UNIT_MAIN(NULL, NULL)
