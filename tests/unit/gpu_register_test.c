/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers registered with NCCL: requested by the seat, carried out by the launcher,
 * with errors returned to the seat. gpu_matrix_test checks that calls move from and to
 * them, hvd_register_test that all members have them or none. */
#include "tests/unit/gpu_members.h"

#include "runtime/backend/device.h"

static const struct device_ops *const row = &hvd_cuda_device_ops;

struct member_world {
    struct device *d;
    struct backend *gpu;
    float *v;
};

enum { COUNT = 1000, BYTES = COUNT * sizeof(float) };

static atomic_bool is_over; /* makes the seat's wait fail */

static int seat_interrupted(void *arg, struct err *err)
{
    (void)arg;
    return atomic_load(&is_over) ? err_set(err, -EPIPE, "lost rank 7") : 0;
}

static int member_begin(struct member_world *w,
                        struct backend *meeting,
                        uint32_t me,
                        struct err *err)
{
    const struct device_config config = case_config(me, the_case->n);
    const struct backend_env env = {
        .rank = me, .size = the_case->n, .interrupted = seat_interrupted};
    int rc = row->open(&config, (int)me, &w->d, err);

    if (!rc)
        rc = row->comm_open(w->d, meeting, &env, case_ranks, &w->gpu, err);
    if (!rc && !(w->v = floats_new(w->d, COUNT, 1, err)))
        rc = -ENOMEM;
    return rc;
}

static int member_end(struct member_world *w, int rc, char *said)
{
    if (rc)
        row->abort(w->d);
    else
        w->gpu->ops->close(w->gpu);
    return row->close(w->d, NULL) && !rc ? SAYS("close") : rc;
}

#define ENDS(what)                                                                     \
    do {                                                                               \
        if (!(what)) {                                                                 \
            (void)SAYS("rank %u, line %d: %s: %s", me, __LINE__, #what, err.text);     \
            return member_end(&w, 1, said);                                            \
        }                                                                              \
    } while (0)

static int sum_now(struct member_world *w, struct err *err)
{
    uint64_t ticket;
    int rc = post_sum(w->gpu, w->v, COUNT, &ticket, err);

    return rc ? rc : wait_ticket(w->gpu, ticket, 20, err);
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

static int
member_registers(struct backend *meeting, uint32_t me, struct party *p, char *said)
{
    struct member_world w = {NULL};
    struct err err = ERR_INIT;

    (void)p;
    ENDS(member_begin(&w, meeting, me, &err) == 0);
    ENDS(row->buffer_register(w.gpu, w.v, BYTES, &err) == 0);
    ENDS(n_known(w.gpu) == (the_case->n > 1));
    ENDS(sum_now(&w, &err) == 0);
    row->buffer_forget(w.gpu, w.v);
    ENDS(n_known(w.gpu) == 0);
    ENDS(sum_now(&w, &err) == 0);
    /* one that is left goes with the communicator */
    ENDS(row->buffer_register(w.gpu, w.v, BYTES, &err) == 0);
    ENDS(sum_now(&w, &err) == 0);
    return member_end(&w, 0, said);
}

/* The launcher of rank 0 sits behind a batch that does not come back. */
static int is_stuck(struct backend *meeting, uint32_t me, struct party *p, char *said)
{
    struct member_world w = {NULL};
    struct err err = ERR_INIT;
    uint64_t ticket;

    ENDS(member_begin(&w, meeting, me, &err) == 0);
    ENDS(post_sum(w.gpu, w.v, COUNT, &ticket, &err) == 0);
    meet_all(p, 1);
    atomic_store(&is_over, true);
    if (me == 0) {
        ENDS(row->buffer_register(w.gpu, w.v, BYTES, &err) == -EPIPE);
        ENDS(!strcmp(err.text, "lost rank 7"));
    }
    row->abort(w.d);
    ENDS(row->buffer_register(w.gpu, w.v, BYTES, &err) == -ECONNABORTED);
    (void)row->close(w.d, NULL);
    return 0;
}

/* --- the fusion buffer --- */

static int
post_two(struct backend *b, float *v, size_t n, uint64_t *ret_ticket, struct err *err)
{
    struct batch_item items[] = {{.in = v, .out = v, .count = n},
                                 {.in = v + n, .out = v + n, .count = n}};
    struct batch batch = {.coll = COLL_ALLREDUCE,
                          .place = PLACE_CUDA,
                          .dtype = DT_F32,
                          .op = OP_SUM,
                          .prescale = 1,
                          .postscale = 1,
                          .items = items,
                          .n_items = 2};

    return b->ops->post(b, &batch, ret_ticket, err);
}

/* Rank 0's kernel in the small buffer waits for rank 1 while its large one is made. */
static int
member_outgrows(struct backend *meeting, uint32_t me, struct party *p, char *said)
{
    enum { LARGE = 700000 };
    struct member_world w = {NULL};
    struct err err = ERR_INIT;
    float *v, *large;
    uint64_t ticket;

    ENDS(member_begin(&w, meeting, me, &err) == 0);
    ENDS((v = floats_new(w.d, 2 * COUNT, 1, &err)));
    ENDS((large = floats_new(w.d, 2 * LARGE, 1, &err)));
    if (me == 1)
        meet_all(p, 1);
    ENDS(post_two(w.gpu, v, COUNT, &ticket, &err) == 0);
    ENDS(post_two(w.gpu, large, LARGE, &ticket, &err) == 0);
    if (me == 0) {
        ENDS(launcher_drain(&w.d->launcher, p->deadline_ns) == 0);
        meet_all(p, 1);
    }
    ENDS(wait_ticket(w.gpu, ticket, 20, &err) == 0);
    ENDS(n_known(w.gpu) == 1); /* the small one */
    ENDS(floats_are(w.d, v, 2 * COUNT, 2, &err));
    ENDS(floats_are(w.d, large, 2 * LARGE, 2, &err));
    return member_end(&w, 0, said);
}

/* --- tests --- */

UNIT_TEST(a_buffer_is_known_until_it_is_forgotten)
{
    run_case(&(struct gpu_case){.n = 3, .row_body = member_registers});
    run_case(&(struct gpu_case){.n = 1, .row_body = member_registers});
}

/* The user's wish: success, and no handle. */
UNIT_TEST(nothing_is_registered_where_nccl_must_not)
{
    (void)setenv("NCCL_LOCAL_REGISTER", "0", 1);
    run_case(&(struct gpu_case){.n = 2, .row_body = member_registers});
    run_case(
        &(struct gpu_case){.n = 2, .registers = true, .row_body = member_registers});
    (void)unsetenv("NCCL_LOCAL_REGISTER");
}

UNIT_TEST(the_seat_can_be_interrupted_while_it_waits)
{
    run_case(
        &(struct gpu_case){.n = 2, .faults = "enqueue_hang=0@0", .row_body = is_stuck});
}

UNIT_TEST(an_outgrown_fusion_buffer_is_known_to_the_end)
{
    run_case(
        &(struct gpu_case){.n = 2, .registers = true, .row_body = member_outgrows});
}

UNIT_MAIN(NULL, NULL)
