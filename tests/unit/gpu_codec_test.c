/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed allreduces of device memory, on the fakes: bits, what is kept between
 * steps, what goes over the wire, and what is refused. */
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

static void run_coding(const struct coding_case *k, struct gpu_case c)
{
    coding = k;
    c.row_body = coding_body;
    run_case(&c);
}

static void int8_has_the_bits_of_the_host_s(void **state)
{
    static const struct coding_case cases[] = {
        {.text = "int8", .n_rounds = 60},
        {.text = "int8:block=256", .n_rounds = 30},
        {.text = "int8:block=1024,feedback=0", .n_rounds = 20},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        run_coding(&cases[i], (struct gpu_case){.n = 2});
        run_coding(&cases[i], (struct gpu_case){.n = 3});
        run_coding(&cases[i], (struct gpu_case){.n = 5, .is_deterministic = i == 1});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(int8_has_the_bits_of_the_host_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
