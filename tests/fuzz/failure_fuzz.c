/* SPDX-License-Identifier: Apache-2.0 */
/* A pod's termination message, which any program in the pod can write. */
#include <errno.h>

#include "runtime/base/mem.h"
#include "runtime/contract/failure.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(failure)
{
    char *text = fuzz_text(data, n);
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct failure f, g;
    struct err err = ERR_INIT;
    char sentence[480];
    int rc = failure_parse(text, &f, &err);

    free(text);
    if (rc) {
        MUST((rc == -ENOENT || rc == -EINVAL) && err.code == rc && err.text[0]);
        return 0;
    }
    failure_sentence(&f, sentence, sizeof(sentence));
    MUST(!strchr(sentence, '\n') && !strchr(f.why, '\n'));
    strbuf_init(&b, 4096);
    failure_render(&f, &b);
    MUST(strbuf_status(&b) == 0);
    MUST(failure_parse(strbuf_str(&b), &g, &err) == 0);
    MUST(f.rank == g.rank && f.exit_code == g.exit_code && f.signal == g.signal);
    MUST(f.at_wall_us == g.at_wall_us && strcmp(f.why, g.why) == 0);
    MUST(strcmp(f.host, g.host) == 0);
    return 0;
}
