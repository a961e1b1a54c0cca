/* SPDX-License-Identifier: Apache-2.0 */
/* The messages between horovodrun and the agents of other hosts. The first byte selects
 * the message; a message that is parsed, rendered and parsed again is the same. */
#include <errno.h>

#include "runtime/base/mem.h"
#include "runtime/launch/core/errand.h"
#include "tests/fuzz/fuzz.h"

static void errand_parse_job(const uint8_t *p, size_t n)
{
    static struct errand e, f;
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct option_var *vars = NULL;
    struct err err = ERR_INIT;
    if (errand_read(p, n, "1", &e, &err) < 0) {
        MUST(err.code && err.text[0]);
        return;
    }
    MUST(e.argv.n && !e.argv.v[e.argv.n] && !e.env.v[e.env.n]);
    strbuf_init(&b, 64u << 20);
    errand_write(&e, &b);
    MUST(strbuf_status(&b) == 0 && b.n == n && memcmp(b.p, p, n) == 0);
    MUST(errand_read((const uint8_t *)b.p, b.n, "1", &f, &err) == 0);
    if (errand_vars(&f, &vars, &err) == 0)
        mem_free(vars);
    errand_release(&e);
    errand_release(&f);
}

static void errand_parse_small(uint8_t which, const uint8_t *p, size_t n)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct errand_start s;
    struct errand_ready r;
    struct errand_lost l;
    struct errand_output o;
    strbuf_init(&b, 1u << 20);
    if (which == 0 && errand_start_read(p, n, &s, NULL) == 0) {
        errand_start_write(&s, &b);
        errand_start_release(&s);
    } else if (which == 1 && errand_ready_read(p, n, &r, NULL) == 0)
        errand_ready_write(&r, &b);
    else if (which == 2 && errand_lost_read(p, n, &l, NULL) == 0)
        errand_lost_write(&l, &b);
    else if (which == 3 && errand_output_read(p, n, &o, NULL) == 0)
        MUST(o.stream <= 1 && o.n == n - 8);
    if (b.n)
        MUST(b.n == n && memcmp(b.p, p, n) == 0);
}

FUZZ_TARGET(errand)
{
    if (!n)
        return 0;
    if (data[0] % 5 == 4)
        errand_parse_job(data + 1, n - 1);
    else
        errand_parse_small(data[0] % 5, data + 1, n - 1);
    return 0;
}
