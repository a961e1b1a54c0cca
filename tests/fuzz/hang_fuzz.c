/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent reads of a rank that hangs: its stacks, rank 0's record of the stall, the
 * finding of another agent. The first byte selects which. What is read and written again
 * is the same. */
#include <errno.h>

#include "runtime/base/mem.h"
#include "runtime/contract/stall_record.h"
#include "runtime/launch/core/hang.h"
#include "tests/fuzz/fuzz.h"

static void stall_check(const char *text, size_t n)
{
    CLEANUP(strbuf_release) struct strbuf a = {0}, b = {0};
    struct err err = ERR_INIT;
    struct stall_record r;

    if (stall_record_unpack(text, n, &r, &err) < 0) {
        MUST(err.code == -EPROTO && err.text[0]);
        return;
    }
    strbuf_init(&a, STALL_FILE_MAX_BYTES);
    strbuf_init(&b, STALL_FILE_MAX_BYTES);
    stall_record_pack(&r, &a);
    MUST(strbuf_status(&a) == 0);
    MUST(stall_record_unpack(a.p, a.n, &r, &err) == 0);
    stall_record_pack(&r, &b);
    MUST(strcmp(strbuf_str(&a), strbuf_str(&b)) == 0);
}

static void finding_check(const uint8_t *p, size_t n)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    static struct hang_finding f;
    struct err err = ERR_INIT;

    if (hang_finding_unpack(p, n, &f, &err) < 0) {
        MUST(err.code == -EPROTO && err.text[0]);
        return;
    }
    MUST(f.cause <= LIVE_CAUSE_ABSENT);
    strbuf_init(&b, HANG_FINDING_MAX);
    hang_finding_pack(&f, &b);
    MUST(strbuf_status(&b) == 0 && hang_finding_unpack(b.p, b.n, &f, &err) == 0);
}

static void stacks_check(const char *text)
{
    CLEANUP(arena_release) struct arena arena;
    CLEANUP(strbuf_release) struct strbuf out = {0};
    static struct stack_dump d;
    static struct hang_sample a, b;
    static struct hang_finding f;
    const struct hang_input in = {.a = &a,
                                  .b = &b,
                                  .ticks_per_s = 100,
                                  .dumps = {text, text},
                                  .why_no_dump = "",
                                  .gpu = ""};

    arena_init(&arena, 4u << 20);
    strbuf_init(&out, 4u << 20);
    MUST(stacks_parse(text, &arena, &d) == 0);
    MUST(d.n_threads <= STACK_THREADS_MAX);
    stacks_put(&d, &out);
    a = b = (struct hang_sample){.at_ns = 1, .n_threads = 1, .n = 1};
    b.at_ns = 1000000001;
    a.v[0].state = b.v[0].state = 'R';
    MUST(hang_find(&in, &f) == 0);
    MUST(f.does[0]);
}

FUZZ_TARGET(hang)
{
    AUTOFREE char *text = mem_alloc(n + 1);

    if (n == 0 || n > 65536 || !text)
        return 0;
    memcpy(text, data + 1, n - 1);
    text[n - 1] = '\0';
    if (data[0] == 's')
        stall_check(text, n - 1);
    else if (data[0] == 'f')
        finding_check(data + 1, n - 1);
    else
        stacks_check(text);
    return 0;
}
