/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's last lines, searched for GPU errors. */
#include "runtime/base/mem.h"
#include "runtime/contract/failure.h"
#include "runtime/contract/gpu_cause.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(gpu_cause)
{
    char *text = fuzz_text(data, n);
    char why[sizeof(((struct failure *)NULL)->why)], again[sizeof(why)];
    int32_t rank, same;
    enum gpu_cause cause = gpu_cause_scan(text, why, sizeof(why), &rank);

    free(text);
    MUST(strlen(why) < sizeof(why) && rank >= -1);
    MUST((cause == GPU_CAUSE_NONE) == !*why);
    for (const char *p = why; *p; p++)
        MUST((unsigned char)*p >= 0x20 && *p != 0x7f);
    /* The copied message is found again as the same cause. */
    MUST(gpu_cause_scan(why, again, sizeof(again), &same) == cause);
    MUST(same == rank && strcmp(why, again) == 0);
    return 0;
}
