/* SPDX-License-Identifier: Apache-2.0 */
/* Top-k of device memory, on the fakes: bits, state, and that nothing is lost. */
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

static void topk_has_the_bits_of_the_host_s(void **state)
{
    static const struct coding_case cases[] = {
        {.text = "topk:ratio=0.01", .n_rounds = 60},
        {.text = "topk:k=7", .n_rounds = 40},
        {.text = "topk:k=7", .n_rounds = 40, .has_nans = true},
        {.text = "topk:ratio=0.1,feedback=0", .n_rounds = 30},
        {.text = "topk:ratio=0.01", .n_rounds = 60, .max_bytes = 100000},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        run_coding(&cases[i], (struct gpu_case){.n = 2});
        run_coding(&cases[i], (struct gpu_case){.n = 3, .n_streams = i == 1 ? 2 : 1});
        run_coding(&cases[i], (struct gpu_case){.n = 5, .is_deterministic = i == 1});
    }
}

static void many_on_their_way_keep_the_order_of_what_is_kept(void **state)
{
    static const struct coding_case k = {.text = "topk:ratio=0.02"};

    (void)state;
    coding = &k;
    run_case(&(struct gpu_case){.n = 2, .n_streams = 3, .row_body = queue_body});
    run_case(&(struct gpu_case){.n = 3, .row_body = queue_body});
}

static void nothing_is_lost_over_the_steps(void **state)
{
    static const struct coding_case k = {.text = "topk:ratio=0.1",
                                         .lossy = "topk:ratio=0.1,feedback=0"};

    (void)state;
    coding = &k;
    run_case(&(struct gpu_case){.n = 2, .row_body = drain_body});
    run_case(&(struct gpu_case){.n = 3, .row_body = drain_body});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(topk_has_the_bits_of_the_host_s),
        cmocka_unit_test(many_on_their_way_keep_the_order_of_what_is_kept),
        cmocka_unit_test(nothing_is_lost_over_the_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
