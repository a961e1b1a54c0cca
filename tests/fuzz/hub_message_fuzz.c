/* SPDX-License-Identifier: Apache-2.0 */
/* The messages between the agents of a pod job and its hub. The first byte selects the
 * message; one that is parsed, rendered and parsed again is the same, and one that is
 * refused changes nothing. The last choice is a job: a sequence of messages, each with a
 * byte of length and one of type, as hub_receive.c decodes them for the hub's state. */
#include <errno.h>

#include "runtime/base/mem.h"
#include "runtime/launch/core/meet.h"
#include "tests/fuzz/fuzz.h"

static void message_parse_table(const uint8_t *p, size_t n)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct table t;
    struct err err = ERR_INIT;
    if (table_read(p, n, &t, &err) < 0) {
        MUST(err.code && err.text[0]);
        return;
    }
    MUST(t.address[0] && t.hosts.n <= HOSTLIST_MAX_HOSTS);
    strbuf_init(&b, MESSAGE_TO_AGENT_MAX_BYTES);
    table_write(&t, &b);
    MUST(strbuf_status(&b) == 0 && b.n == n && memcmp(b.p, p, n) == 0);
    table_release(&t);
}

static void report_same(const struct report *a, const struct report *b)
{
    MUST(a->blames == b->blames && a->first_rank == b->first_rank);
    MUST(a->n_ranks == b->n_ranks && a->f.rank == b->f.rank);
    MUST(a->f.exit_code == b->f.exit_code && a->f.signal == b->f.signal);
    MUST(a->f.at_wall_us == b->f.at_wall_us && !strcmp(a->f.host, b->f.host));
    MUST(!strcmp(a->f.why, b->f.why) && !strcmp(a->tail, b->tail));
}

static void message_parse_failed(const uint8_t *p, size_t n)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct report r, again;
    uint32_t generation = 77, g = 0;
    struct err err = ERR_INIT;
    fuzz_fill(&r, sizeof(r));
    if (failed_read(p, n, &generation, &r, &err) < 0) {
        MUST(err.code && err.text[0] && generation == 77);
        MUST(fuzz_is_filled(&r, sizeof(r)));
        return;
    }
    MUST(r.blames >= -1 && !strpbrk(r.f.why, "\n\x1b"));
    MUST(!r.tail[0] || r.tail[strlen(r.tail) - 1] == '\n');
    strbuf_init(&b, MESSAGE_TO_HUB_MAX_BYTES);
    failed_write(generation, &r, &b);
    MUST(strbuf_status(&b) == 0);
    MUST(failed_read((const uint8_t *)b.p, b.n, &g, &again, &err) == 0);
    MUST(g == generation);
    report_same(&r, &again);
}

static void message_parse_small(uint8_t which, const uint8_t *p, size_t n)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct hello h;
    struct job_world w;
    struct origin o;
    strbuf_init(&b, MESSAGE_TO_HUB_MAX_BYTES);
    if (which == 0 && hello_read(p, n, &h, NULL) == 0)
        hello_write(&h, &b);
    else if (which == 1 && world_read(p, n, &w, NULL) == 0)
        world_write(&w, &b);
    else if (which == 2 && origin_read(p, n, &o, NULL) == 0)
        origin_write(&o, &b);
    if (b.n)
        MUST(b.n == n && memcmp(b.p, p, n) == 0);
}

static void meet_check(struct meet *m, uint64_t now_ns)
{
    CLEANUP(strbuf_release) struct strbuf missing = {0};
    CLEANUP(hostlist_release) struct hostlist hosts = {0};
    struct err err = ERR_INIT;
    MUST(m->workers >= 1 && m->workers <= m->n_members);
    MUST(meet_present(m) <= m->workers);
    strbuf_init(&missing, 1024);
    meet_missing(m, &missing);
    MUST(strbuf_status(&missing) == 0);
    MUST((missing.n == 0) == (meet_present(m) == m->workers));
    if (meet_reforms(m)) {
        MUST(m->wanted.generation > m->generation);
        MUST(meet_reform(m, now_ns, &err) == 0);
        MUST(m->state == MEET_WAITING && meet_present(m) == 0);
    }
    enum meet_state due = meet_due(m, 1, now_ns);
    if (due == m->state)
        return;
    MUST(m->state == MEET_WAITING || m->state == MEET_RUNNING);
    MUST(due != MEET_WAITING && (due != MEET_STOPPED || meet_first(m)));
    meet_enter(m, due);
    hostlist_init(&hosts);
    if (due == MEET_RUNNING && meet_hosts(m, &hosts, &err) == 0)
        MUST(hosts.n == m->workers);
}

enum { MAX_WORKERS = 256 }; /* larger worlds only take longer */

static void
meet_take(struct meet *m, uint8_t type, const uint8_t *p, size_t n, uint64_t now_ns)
{
    struct hello h;
    struct report r;
    struct job_world w;
    struct origin o;
    uint32_t generation;
    struct err err = ERR_INIT;
    int rc = 0;
    if (type == MESSAGE_HELLO && hello_read(p, n, &h, &err) == 0
        && h.workers <= MAX_WORKERS)
        rc = meet_hello(m, &h, "10.0.0.1", &err);
    else if (type == MESSAGE_FAILED && failed_read(p, n, &generation, &r, &err) == 0
             && meet_counts(m, generation))
        meet_failed(m, &r, now_ns);
    else if (type == MESSAGE_DONE && origin_read(p, n, &o, &err) == 0)
        meet_done(m, o.worker, o.generation);
    else if (type == MESSAGE_LEAVING && origin_read(p, n, &o, &err) == 0)
        meet_leaving(m, o.worker, now_ns);
    else if (type == MESSAGE_WORLD && world_read(p, n, &w, &err) == 0
             && w.workers <= MAX_WORKERS)
        rc = meet_take_world(m, &w, &err);
    else if (type == MESSAGE_PING && n)
        meet_lost(m, p[0] % m->workers, "closed", 1, now_ns);
    MUST(rc >= 0 || rc == -EAGAIN || rc == -ESTALE || err.text[0]);
}

static void message_run_job(const uint8_t *p, size_t n)
{
    struct meet m;
    struct err err = ERR_INIT;
    uint64_t now_ns = 1;
    MUST(meet_init(&m, 3, 2, 0, 600, now_ns, &err) == 0);
    meet_know_world(&m, 1, true);
    while (n >= 2) {
        uint8_t type = p[1];
        size_t k = p[0];
        p += 2;
        n -= 2;
        k = k < n ? k : n;
        meet_take(&m, type, p, k, now_ns);
        meet_check(&m, now_ns += 1u << 28);
        p += k;
        n -= k;
    }
    meet_check(&m, UINT64_MAX / 2);
    meet_release(&m);
}

FUZZ_TARGET(hub_message)
{
    if (!n)
        return 0;
    switch (data[0] % 6) {
    case 3:
        message_parse_table(data + 1, n - 1);
        break;
    case 4:
        message_parse_failed(data + 1, n - 1);
        break;
    case 5:
        message_run_job(data + 1, n - 1);
        break;
    default:
        message_parse_small(data[0] % 6, data + 1, n - 1);
        break;
    }
    return 0;
}
