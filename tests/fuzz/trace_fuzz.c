/* SPDX-License-Identifier: Apache-2.0 */
/* Timeline messages as a peer might send them: what is read is written again to the
 * same bytes, and whatever events come, the spans of the file balance. */
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/core/trace.h"
#include "tests/fuzz/fuzz.h"

static size_t text_count(const char *text, const char *part)
{
    size_t n = 0;

    for (const char *p = text; (p = strstr(p, part)) != NULL; p++)
        n++;
    return n;
}

static void down_check(const uint8_t *data, size_t n)
{
    CLEANUP(strbuf_release) struct strbuf again = {0};
    struct bytes_reader in = {.p = data, .left = n};
    struct trace_down m;

    if (trace_read_down(&in, &m, NULL) < 0)
        return;
    MUST(trace_is_message(data, n));
    strbuf_init(&again, 64);
    trace_write_down(&m, &again);
    MUST(again.n == n && memcmp(again.p, data, n) == 0);
}

FUZZ_TARGET(trace)
{
    CLEANUP(strbuf_release) struct strbuf again = {0};
    CLEANUP(strbuf_release) struct strbuf json = {0};
    struct bytes_reader in = {.p = data, .left = n};
    struct trace *t;
    struct trace_up head;
    struct trace_event ev;
    size_t end;

    down_check(data, n);
    if (trace_read_up(&in, &head, NULL) < 0)
        return 0;
    MUST(trace_is_message(data, n));
    strbuf_init(&again, n + 1);
    strbuf_init(&json, 64u << 20);
    trace_write_up(&head, &again);
    t = trace_new(0);
    MUST(t != NULL);
    trace_head(1, &json);
    for (end = (size_t)(in.p - data); trace_read_event(&in, &ev, NULL) > 0;
         end = (size_t)(in.p - data)) {
        trace_write_event(&ev, &again);
        MUST(trace_put(t, ev.rank % 7, &ev, head.least_down_ns, &json) == 0);
    }
    trace_close(t, head.sent_ns, &json);
    trace_free(t);
    MUST(again.n == end && memcmp(again.p, data, end) == 0);
    MUST(strbuf_status(&json) == 0);
    MUST(text_count(strbuf_str(&json), "{\"ph\":\"B\"")
         == text_count(strbuf_str(&json), "{\"ph\":\"E\""));
    return 0;
}
