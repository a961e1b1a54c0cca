/* SPDX-License-Identifier: Apache-2.0 */
/* SLURM_STEP_TASKS_PER_NODE: counts that are parsed, rendered and parsed again are equal. */
#include "tests/fuzz/fuzz_hostlist.h"

#define MAX_COUNTS 4096

FUZZ_TARGET(slurm_counts)
{
    char *text = fuzz_text(data, n);
    AUTOFREE uint32_t *v = NULL;
    AUTOFREE uint32_t *again = NULL;
    CLEANUP(strbuf_release) struct strbuf b = {0};
    size_t n_v = 0, n_again = 0;
    struct err err = ERR_INIT;
    int rc = slurm_counts_parse(text, MAX_COUNTS, &v, &n_v, &err);

    free(text);
    if (rc) {
        MUST(!v && err.code == rc && err.text[0]);
        return 0;
    }
    MUST(n_v >= 1 && n_v <= MAX_COUNTS);
    strbuf_init(&b, 1u << 20);
    for (size_t i = 0; i < n_v; i++)
        strbuf_printf(&b, i ? ",%u" : "%u", v[i]);
    MUST(slurm_counts_parse(strbuf_str(&b), MAX_COUNTS, &again, &n_again, &err) == 0);
    MUST(n_v == n_again && memcmp(v, again, n_v * sizeof(*v)) == 0);
    return 0;
}
