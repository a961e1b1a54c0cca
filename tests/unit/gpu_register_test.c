/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers registered with NCCL: requested by the seat, carried out by the launcher,
 * with errors returned to the seat. gpu_matrix_test checks that calls move from and to
 * them, hvd_register_test that all members have them or none. */
#include "tests/unit/gpu_members.h"

enum { COUNT = 1000, BYTES = COUNT * sizeof(float) };

static atomic_bool is_over; /* makes the seat's wait fail */

static int seat_interrupted(void *arg, struct err *err)
{
    return atomic_load(&is_over) ? err_set(err, -EPIPE, "lost rank 7") : 0;
}

static int sum_now(struct backend *b, float *v, struct err *err)
{
    uint64_t ticket;
    int rc = post_sum(b, v, COUNT, &ticket, err);

    return rc ? rc : wait_ticket(b, ticket, 20, err);
}

static size_t n_known(const struct backend *b)
{
    size_t n = 0;

    for (const struct comm_region *r = ((const struct comm *)(const void *)b)->regions;
         r; r = r->next)
        n++;
    return n;
}

/* --- bodies --- */

ROW_BODY(member_registers)
{
    struct err err = ERR_INIT;
    float *v;

    HOLDS((v = floats_new(g, COUNT, 1, &err)));
    HOLDS(row->buffer_register(b, v, BYTES, &err) == 0);
    HOLDS(n_known(b) == (p->size > 1));
    HOLDS(sum_now(b, v, &err) == 0);
    row->buffer_forget(b, v);
    HOLDS(n_known(b) == 0);
    HOLDS(sum_now(b, v, &err) == 0);
    /* one that is left goes with the communicator */
    HOLDS(row->buffer_register(b, v, BYTES, &err) == 0);
    HOLDS(sum_now(b, v, &err) == 0);
    return 0;
}

/* The launcher of rank 0 sits behind a batch that does not come back. */
ROW_TEST(the_seat_can_be_interrupted_while_it_waits,
         .n = 2,
         .faults = "enqueue_hang=0@0",
         .interrupted = seat_interrupted)
{
    struct err err = ERR_INIT;
    uint64_t ticket;
    float *v;

    HOLDS((v = floats_new(g, COUNT, 1, &err)));
    HOLDS(post_sum(b, v, COUNT, &ticket, &err) == 0);
    meet_all(p, 1);
    atomic_store(&is_over, true);
    if (g->config.rank == 0) {
        HOLDS(row->buffer_register(b, v, BYTES, &err) == -EPIPE);
        HOLDS(!strcmp(err.text, "lost rank 7"));
    }
    row->abort(g);
    HOLDS(row->buffer_register(b, v, BYTES, &err) == -ECONNABORTED);
    return 0;
}

/* --- the fusion buffer --- */

static int
post_two(struct backend *b, float *v, size_t n, uint64_t *ret_ticket, struct err *err)
{
    struct batch_item items[] = {{.in = v, .out = v, .count = n},
                                 {.in = v + n, .out = v + n, .count = n}};
    const struct batch batch = batch_of(items, 2);

    return b->ops->post(b, &batch, ret_ticket, err);
}

/* Rank 0's kernel in the small buffer waits for rank 1 while its large one is made. */
ROW_TEST(an_outgrown_fusion_buffer_is_known_to_the_end, .n = 2, .registers = true)
{
    enum { LARGE = 700000 };
    struct err err = ERR_INIT;
    float *v, *large;
    uint64_t ticket;

    HOLDS((v = floats_new(g, 2 * COUNT, 1, &err)));
    HOLDS((large = floats_new(g, 2 * LARGE, 1, &err)));
    if (g->config.rank == 1)
        meet_all(p, 1);
    HOLDS(post_two(b, v, COUNT, &ticket, &err) == 0);
    HOLDS(post_two(b, large, LARGE, &ticket, &err) == 0);
    if (g->config.rank == 0) {
        HOLDS(launcher_drain(&g->launcher, p->deadline_ns) == 0);
        meet_all(p, 1);
    }
    HOLDS(wait_ticket(b, ticket, 20, &err) == 0);
    HOLDS(n_known(b) == 1); /* the small one */
    HOLDS(floats_are(g, v, 2 * COUNT, 2, &err));
    HOLDS(floats_are(g, large, 2 * LARGE, 2, &err));
    return 0;
}

/* --- tests --- */

UNIT_TEST(a_buffer_is_known_until_it_is_forgotten)
{
    RUN_CASE(.n = 3, .row_body = member_registers);
    RUN_CASE(.n = 1, .row_body = member_registers);
}

/* The user's wish: success, and no handle. */
UNIT_TEST(nothing_is_registered_where_nccl_must_not)
{
    for (int registers = 0; registers < 2; registers++)
        RUN_CASE(.n = 2, .registers = registers, .row_body = member_registers,
                 .env = "NCCL_LOCAL_REGISTER", .value = "0");
}

UNIT_MAIN(NULL, NULL)
