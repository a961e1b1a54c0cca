/* SPDX-License-Identifier: Apache-2.0 */
/* PowerSGD of device memory, on the fakes: members are equal, and near the host's
 * codec; nothing is lost. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/gpu_codec.h"

static void powersgd_is_near_the_host_s(void **state)
{
    static const struct coding_case cases[] = {
        {.text = "powersgd",
         .slack = 2e-2,
         .slack_wide = 1e-4,
         .slack_bf16 = 0.3,
         .n_rounds = 50},
        {.text = "powersgd:rank=2",
         .slack = 2e-2,
         .slack_wide = 1e-4,
         .slack_bf16 = 0.3,
         .has_nans = true,
         .n_rounds = 30},
        {.text = "powersgd:rank=1,seed=7",
         .slack = 2e-2,
         .slack_wide = 1e-4,
         .slack_bf16 = 0.3,
         .n_rounds = 40},
        {.text = "powersgd:rank=9",
         .slack = 2e-2,
         .slack_wide = 1e-4,
         .slack_bf16 = 0.3,
         .n_rounds = 40},
        {.text = "powersgd:rank=3,feedback=0",
         .slack = 2e-2,
         .slack_wide = 1e-4,
         .slack_bf16 = 0.3,
         .n_rounds = 30},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        run_coding(&cases[i], (struct gpu_case){.n = 2});
        run_coding(&cases[i], (struct gpu_case){.n = 3, .n_streams = i == 2 ? 2 : 1});
        run_coding(&cases[i], (struct gpu_case){.n = 5, .is_deterministic = i == 2});
    }
}

static void nothing_is_lost_over_the_steps(void **state)
{
    static const struct coding_case k = {.text = "powersgd:rank=9",
                                         .lossy = "powersgd:rank=9,feedback=0"};

    (void)state;
    coding = &k;
    run_case(&(struct gpu_case){.n = 2, .row_body = drain_body});
    run_case(&(struct gpu_case){.n = 3, .row_body = drain_body});
}

static void many_on_their_way_keep_the_order_of_what_is_kept(void **state)
{
    static const struct coding_case k = {.text = "powersgd:rank=2", .slack = 1e-4};

    (void)state;
    coding = &k;
    run_case(&(struct gpu_case){.n = 2, .n_streams = 3, .row_body = queue_body});
    run_case(&(struct gpu_case){.n = 3, .row_body = queue_body});
}

/* --- calls --- */

static atomic_uint n_calls; /* of all members */
static struct nccl_api real;

static int count_reduce(
    const void *in, void *out, size_t n, int dtype, int op, nccl_comm nc, cu_stream s)
{
    n_calls++;
    return real.all_reduce(in, out, n, dtype, op, nc, s);
}

/* Three tensors that are compressed: two calls a batch, or two a tensor. */
static int calls_body(struct backend *meeting, uint32_t me, struct party *p, char *said)
{
    const unsigned want = (the_case->is_deterministic ? 6 : 2) * p->size;
    const size_t bytes = CODED_ROOM;
    AUTOFREE uint8_t *arena = mem_zalloc(bytes);
    struct coded b = {
        .dtype = DT_F32, .op = OP_SUM, .pre = 1, .post = 1, .n = 3, .which = {0, 2, 5}};
    struct err err = ERR_INIT;
    struct nccl_api counted;
    struct coder c;

    if (coder_open(&c, meeting, me, said))
        return 1;
    if (me == 0)
        real = *c.d->nccl;
    counted = *c.d->nccl;
    counted.all_reduce = count_reduce;
    int rc = launcher_drain(&c.d->launcher, p->deadline_ns);
    meet_all(p, 1);
    c.d->nccl = &counted; /* the launcher has nothing to do now */
    rc = rc ? rc : coded_plan(&c, &b, coding->text);
    coded_fill(&c, &b, arena);
    rc = rc ? rc : run_gpu(&c, &b, arena, arena, &err);
    rc = rc ? rc : are_equal(&c, &b, arena, &err); /* all have called */
    if (rc || n_calls != want)
        rc = SAYS("rank %u: %u calls, not %u: %s", me, n_calls, want, err.text);
    return coder_close(&c, rc, said);
}

static void factors_of_a_batch_are_summed_at_once_unless_deterministic(void **state)
{
    static const struct coding_case k = {.text = "powersgd:rank=3"};

    (void)state;
    coding = &k;
    run_case(&(struct gpu_case){.n = 3, .row_body = calls_body});
    run_case(
        &(struct gpu_case){.n = 3, .is_deterministic = true, .row_body = calls_body});
}

/* --- what makes all NaN, and what is refused --- */

static int nan_body(struct backend *meeting, uint32_t me, struct party *p, char *said)
{
    const size_t bytes = CODED_ROOM;
    AUTOFREE uint8_t *arena = mem_zalloc(bytes);
    AUTOFREE uint8_t *got = mem_zalloc(bytes);
    struct coded b = {
        .dtype = DT_F32, .op = OP_SUM, .pre = 1, .post = 1, .n = 2, .which = {0, 5}};
    struct err err = ERR_INIT;
    struct coder c;

    (void)p;
    if (coder_open(&c, meeting, me, said))
        return 1;
    int rc = coded_plan(&c, &b, coding->text);
    coded_fill(&c, &b, arena);
    if (me == 1)
        coded_put(DT_F32, arena, 77, NAN);
    rc = rc ? rc : run_gpu(&c, &b, arena, got, &err);
    for (size_t i = 0; i < 6400 && !rc; i++)
        if (!isnan(coded_get(DT_F32, got, i)))
            rc = err_set(&err, -EIO, "[%zu] is a number", i);
    if (!rc && isnan(coded_get(DT_F32, got + b.at[1], 0)))
        rc = err_set(&err, -EIO, "another tensor is NaN");
    memset(arena, 0, bytes); /* nothing of it stays */
    rc = rc ? rc : run_gpu(&c, &b, arena, got, &err);
    for (size_t i = 0; i < 6400 && !rc; i++)
        if (isnan(coded_get(DT_F32, got, i)))
            rc = err_set(&err, -EIO, "[%zu] is NaN still", i);
    if (rc)
        (void)SAYS("rank %u: %s", me, err.text);
    return coder_close(&c, rc, said);
}

static void a_nan_is_delivered_and_does_not_stay(void **state)
{
    static const struct coding_case k = {.text = "powersgd:rank=5"};

    (void)state;
    coding = &k;
    run_case(&(struct gpu_case){.n = 3, .row_body = nan_body});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(powersgd_is_near_the_host_s),
        cmocka_unit_test(many_on_their_way_keep_the_order_of_what_is_kept),
        cmocka_unit_test(nothing_is_lost_over_the_steps),
        cmocka_unit_test(factors_of_a_batch_are_summed_at_once_unless_deterministic),
        cmocka_unit_test(a_nan_is_delivered_and_does_not_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
