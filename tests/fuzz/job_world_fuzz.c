/* SPDX-License-Identifier: Apache-2.0 */
/* A world's text that is parsed, rendered and parsed again is the same. */
#include "runtime/contract/job_world.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(job_world)
{
    char *text = fuzz_text(data, n), again[JOB_WORLD_TEXT_SIZE];
    struct job_world w, back;
    struct err err = ERR_INIT;
    int rc = job_world_parse(text, &w, &err);

    free(text);
    if (rc < 0) {
        MUST(err.text[0]);
        return 0;
    }
    job_world_render(&w, again);
    MUST(job_world_parse(again, &back, &err) == 0);
    MUST(back.generation == w.generation && back.workers == w.workers);
    return 0;
}
