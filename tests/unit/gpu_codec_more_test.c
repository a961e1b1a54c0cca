/* SPDX-License-Identifier: Apache-2.0 */
/* Top-k and PowerSGD of device memory, on the fakes: members are equal, and have the
 * bits of the host's codec or are near it. */
#include <math.h>

#include "tests/unit/gpu_codec.h"

UNIT_TEST(topk_has_the_bits_of_the_host_s)
{
    static const struct coding_case cases[] = {
        {.text = "topk:ratio=0.01", .n_rounds = 60},
        {.text = "topk:k=7", .n_rounds = 40},
        {.text = "topk:k=7", .n_rounds = 40, .has_nans = true},
        {.text = "topk:ratio=0.1,feedback=0", .n_rounds = 30},
        {.text = "topk:ratio=0.01", .n_rounds = 60, .max_bytes = 100000},
    };

    run_codings(cases, ARRAY_LEN(cases), 1);
}

UNIT_TEST(powersgd_is_near_the_host_s)
{
#define NEAR .slack = 2e-2, .slack_wide = 1e-4, .slack_bf16 = 0.3
    static const struct coding_case cases[] = {
        {.text = "powersgd", NEAR, .n_rounds = 50},
        {.text = "powersgd:rank=2", NEAR, .has_nans = true, .n_rounds = 30},
        {.text = "powersgd:rank=1,seed=7", NEAR, .n_rounds = 40},
        {.text = "powersgd:rank=9", NEAR, .n_rounds = 40},
        {.text = "powersgd:rank=3,feedback=0", NEAR, .n_rounds = 30},
    };
#undef NEAR

    run_codings(cases, ARRAY_LEN(cases), 2);
}

UNIT_TEST(many_on_their_way_keep_the_order_of_what_is_kept)
{
    static const struct coding_case top = {.text = "topk:ratio=0.02",
                                           .body = queue_body},
                                    power = {.text = "powersgd:rank=2",
                                             .slack = 1e-4,
                                             .body = queue_body};

    run_queues(&top, 1);
    run_queues(&power, 1);
}

/* --- calls --- */

/* Three tensors that are compressed: two calls a batch, or two a tensor. */
static int calls_body(struct coder *c, struct party *p, char *said)
{
    const unsigned want = the_case->is_deterministic ? 6 : 2;
    AUTOFREE uint8_t *arena = mem_zalloc(CODED_ROOM);
    struct coded b = {
        .dtype = DT_F32, .op = OP_SUM, .pre = 1, .post = 1, .n = 3, .which = {0, 2, 5}};
    struct err err = ERR_INIT;
    unsigned n = 0;

    int rc = coded_plan(c, &b, coding->text);
    coded_fill(c, &b, arena);
    rc = rc ? rc : run_gpu(c, &b, arena, arena, &err);
    rc = rc ? rc : are_equal(c, &b, arena, &err);
    char *log = nccl_log_of(c->me);
    for (const char *l = log; (l = strstr(l, "AllReduce of ")); l++)
        n++;
    free(log);
    return rc || n != want
               ? SAYS("rank %u: %u calls, not %u: %s", c->me, n, want, err.text)
               : 0;
}

UNIT_TEST(factors_of_a_batch_are_summed_at_once_unless_deterministic)
{
    static const struct coding_case k = {.text = "powersgd:rank=3", .body = calls_body};

    run_coding(&k, (struct gpu_case){.n = 3});
    run_coding(&k, (struct gpu_case){.n = 3, .is_deterministic = true});
}

UNIT_MAIN(NULL, NULL)
