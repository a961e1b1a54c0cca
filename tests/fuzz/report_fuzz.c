/* SPDX-License-Identifier: Apache-2.0 */
/* The totals of another rank, and the sentences about any numbers. */
#include <errno.h>

#include "runtime/base/mem.h"
#include "runtime/core/report.h"
#include "tests/fuzz/fuzz.h"

static const char *fuzz_host(void *arg, uint32_t rank)
{
    (void)arg;
    return rank == 0 ? "a" : "b";
}

FUZZ_TARGET(report)
{
    CLEANUP(strbuf_release) struct strbuf again = {0}, text = {0};
    struct report_totals t[2] = {{{0}}}, back;
    const bool has[2] = {true, true};
    struct job_report r = {.n_ranks = 2,
                           .totals = t,
                           .has = has,
                           .host_of = fuzz_host,
                           .cause = "",
                           .is_dry = n % 2 == 0};
    struct err err = ERR_INIT;

    int rc = report_totals_unpack(data, n, &t[1], &err);
    if (rc < 0) {
        MUST(rc == -EBADMSG && err.text[0]);
        return 0;
    }
    t[0] = t[1];
    strbuf_init(&again, REPORT_MESSAGE_BYTES);
    report_totals_pack(&t[1], &again);
    MUST(strbuf_status(&again) == 0);
    MUST(report_totals_unpack(again.p, again.n, &back, &err) == 0);
    MUST(memcmp(&back, &t[1], sizeof(back)) == 0);
    strbuf_init(&text, 8192);
    job_report_write(&r, &text);
    MUST(strbuf_status(&text) == 0);
    MUST(strstr(strbuf_str(&text), "horovod: report: advice: "));
    return 0;
}
