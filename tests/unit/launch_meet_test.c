/* SPDX-License-Identifier: Apache-2.0 */
/* meet.c and message.c: the hub's decisions and messages. */
#include "tests/unit/launch_fixture.h"

UNIT_TEST(it_starts_when_all_are_here_and_never_before)
{
    CLEANUP(meet_release) struct meet m;
    struct err err = ERR_INIT;
    meet_start(&m, 3, 1);
    assert_int_equal(worker_join(&m, 2, &err), 0);
    assert_int_equal(worker_join(&m, 0, &err), 0);
    assert_int_equal(worker_join(&m, 2, &err), 0); /* its pod was replaced */
    assert_int_equal(meet_due(&m, 1, 1), MEET_WAITING);
    meet_lost(&m, 2, "x", 1, 1); /* before the start a lost worker may come back */
    assert_int_equal(worker_join(&m, 1, &err), 0);
    assert_int_equal(meet_due(&m, 1, 1), MEET_WAITING);
    assert_int_equal(worker_join(&m, 2, &err), 0);
    assert_int_equal(meet_due(&m, 1, 1), MEET_RUNNING);
}

UNIT_TEST(it_finishes_when_all_are_done)
{
    CLEANUP(meet_release) struct meet m;
    struct report late = report_of(1, 1, 0, -1, 0);
    meet_start(&m, 2, 1);
    meet_run(&m);
    meet_done(&m, 1, 0);
    meet_lost(&m, 1, "gone", 1, 1); /* its work is done */
    assert_int_equal(meet_due(&m, 1, 1), MEET_RUNNING);
    meet_done(&m, 0, 0);
    assert_int_equal(meet_due(&m, 1, 1), MEET_FINISHED);
    meet_failed(&m, &late, 1); /* a consequence of its end */
    assert_int_equal(meet_due(&m, 1, S), MEET_FINISHED);
    meet_enter(&m, MEET_FINISHED);
    assert_int_equal(meet_due(&m, 1, 1), MEET_FINISHED);
    assert_int_equal(meet_deadline_ns(&m), UINT64_MAX);
}

UNIT_TEST(a_failure_stops_it_after_the_window)
{
    CLEANUP(meet_release) struct meet m;
    struct report r = report_of(1, 3, 0, -1, 0), later = report_of(0, 3, 0, -1, 0);
    meet_start(&m, 2, 1);
    meet_run(&m);
    meet_failed(&m, &r, 10 * S);
    assert_int_equal(meet_due(&m, 1, 10 * S), MEET_RUNNING);
    assert_int_equal(meet_deadline_ns(&m), 10 * S + VERDICT_WINDOW_MS * MS);
    meet_failed(&m, &later, 10 * S + 1);
    assert_int_equal(meet_due(&m, 1, meet_deadline_ns(&m)), MEET_STOPPED);
    assert_int_equal(meet_first(&m)->f.rank, 1);
    meet_enter(&m, MEET_STOPPED);
    meet_lost(&m, 0, "stopped", 1, 11 * S); /* no new failure */
    assert_int_equal(m.verdict.n, 2);
}

UNIT_TEST(a_lost_worker_is_named_with_its_ranks)
{
    CLEANUP(meet_release) struct meet m;
    meet_start(&m, 3, 4);
    meet_run(&m);
    meet_lost(&m, 2, "its agent exited", 99, S);
    const struct report *r = meet_first(&m);
    assert_non_null(r);
    assert_int_equal(r->first_rank, 8);
    assert_int_equal(r->n_ranks, 4);
    assert_int_equal(r->f.rank, -1);
    assert_string_equal(r->f.why, "worker 2 (w-2) was lost: its agent exited");
}

UNIT_TEST(missing_workers_are_named_at_the_timeout)
{
    CLEANUP(meet_release) struct meet m;
    struct err err = ERR_INIT;
    meet_start(&m, 20, 1);
    assert_int_equal(worker_join(&m, 0, &err), 0);
    assert_int_equal(meet_due(&m, 1, 60 * S - 1), MEET_WAITING);
    assert_int_equal(meet_deadline_ns(&m), 60 * S);
    assert_int_equal(meet_due(&m, 1, 60 * S), MEET_STOPPED);
    assert_string_equal(
        meet_first(&m)->f.why,
        "waited 60 s for workers 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 7 more "
        "of 20, which did not connect: check their pods");
    meet_release(&m);
    meet_start(&m, 2, 1);
    assert_int_equal(worker_join(&m, 0, &err), 0);
    assert_int_equal(meet_due(&m, 1, 60 * S), MEET_STOPPED);
    assert_string_equal(
        meet_first(&m)->f.why,
        "waited 60 s for worker 1 of 2, which did not connect: check its pod");
}

UNIT_TEST(wrong_workers_are_refused_with_a_message)
{
    CLEANUP(meet_release) struct meet m;
    struct err err = ERR_INIT;
    struct hello h = {.worker = 1, .workers = 2, .slots = 2, .host = "w-1"};
    meet_start(&m, 2, 1);
    assert_int_equal(worker_join(&m, 2, &err), -EINVAL);
    assert_string_equal(err.text, "worker index 2 is not below the job's 2 workers");
    assert_int_equal(meet_hello(&m, &h, "a", &err), -EINVAL);
    assert_non_null(strstr(err.text, "2 slots"));
    meet_run(&m);
    assert_int_equal(worker_join(&m, 1, &err), -EALREADY);
    assert_string_equal(err.text,
                        "the job has already started; worker 1 cannot join it now");
}

UNIT_TEST(hosts_of_one_name_get_different_names)
{
    CLEANUP(meet_release) struct meet m;
    struct err err = ERR_INIT;
    CLEANUP(hostlist_release) struct hostlist hl;
    meet_start(&m, 4, 2);
    meet_run(&m);
    strcpy(m.members[1].host, "node");
    strcpy(m.members[2].host, "node");
    strcpy(m.members[3].host, "node");
    strcpy(m.members[3].address, "10.0.0.2"); /* as worker 2's */
    hostlist_init(&hl);
    assert_int_equal(meet_hosts(&m, &hl, &err), 0);
    assert_string_equal(hl.v[0].name, "w-0");
    assert_string_equal(hl.v[1].name, "10.0.0.1");
    assert_string_equal(hl.v[2].name, "worker-2");
    assert_string_equal(hl.v[3].name, "worker-3");
    assert_int_equal(hl.v[3].slots, 2);
}

/* Reading every beginning of what was written fails; reading all of it fills *ret. */
#define READ_BACK(read, b, ret)                                                        \
    do {                                                                               \
        for (size_t n_cut = 0; n_cut < (b)->n; n_cut++)                                \
            assert_true(read((const uint8_t *)(b)->p, n_cut, ret, NULL) < 0);          \
        assert_int_equal(read((const uint8_t *)(b)->p, (b)->n, ret, NULL), 0);         \
        strbuf_clear(b);                                                               \
    } while (0)

static uint32_t read_generation;
static int failed_read_back(const uint8_t *p, size_t n, struct report *r, struct err *e)
{
    return failed_read(p, n, &read_generation, r, e);
}

UNIT_TEST(messages_come_back_as_they_were_and_not_when_cut)
{
    CLEANUP(strbuf_release) struct strbuf b;
    struct hello h = {3, 4, 8, 30, 7, "demo-worker-3"}, h2;
    struct table t = {.rdv_port = 41234, .master_port = 29500, .address = "10.1.2.3"},
                 t2;
    struct report r = report_of(5, 3, 0, 2, 0), r2;
    struct job_world w = {4, 70000}, w2;
    struct origin o = {3, 8}, o2;
    strcpy(r.tail, "one\ntwo\n");
    strbuf_init(&b, 100000);
    hello_write(&h, &b);
    READ_BACK(hello_read, &b, &h2);
    assert_int_equal(h2.np, 30);
    assert_int_equal(h2.generation, 7);
    assert_string_equal(h2.host, h.host);
    hostlist_init(&t.hosts);
    assert_int_equal(hostlist_append(&t.hosts, "a", 8, NULL), 0);
    assert_int_equal(hostlist_append(&t.hosts, "b", 4, NULL), 0);
    table_write(&t, &b);
    READ_BACK(table_read, &b, &t2);
    assert_int_equal(t2.rdv_port, 41234);
    assert_int_equal(t2.hosts.n, 2);
    assert_string_equal(t2.hosts.v[1].name, "b");
    table_release(&t);
    table_release(&t2);
    report_write(&r, &b);
    READ_BACK(report_read, &b, &r2);
    assert_int_equal(r2.blames, 2);
    assert_int_equal(r2.f.exit_code, 3);
    assert_string_equal(r2.tail, "one\ntwo\n");
    failed_write(9, &r, &b);
    READ_BACK(failed_read_back, &b, &r2);
    assert_int_equal(read_generation, 9);
    assert_string_equal(r2.tail, "one\ntwo\n");
    world_write(&w, &b);
    READ_BACK(world_read, &b, &w2);
    assert_memory_equal(&w2, &w, sizeof(w));
    origin_write(&o, &b);
    READ_BACK(origin_read, &b, &o2);
    assert_memory_equal(&o2, &o, sizeof(o));
}

UNIT_TEST(a_tail_that_no_agent_sends_is_refused)
{
    static const char *const bad[] = {"no end", "one\nno end", "\x1b[2J\n", "\x7f\n"};
    CLEANUP(strbuf_release) struct strbuf b;
    struct report r = report_of(5, 3, 0, 2, 0), back, before;
    strbuf_init(&b, 100000);
    memset(&back, 7, sizeof(back));
    before = back;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        strcpy(r.tail, bad[i]);
        strbuf_clear(&b);
        report_write(&r, &b);
        assert_int_equal(report_read((const uint8_t *)b.p, b.n, &back, NULL), -EPROTO);
        assert_memory_equal(&back, &before, sizeof(back));
    }
    strcpy(r.tail, "\tone \xc3\xa4\n\ntwo\n");
    strbuf_clear(&b);
    report_write(&r, &b);
    assert_int_equal(report_read((const uint8_t *)b.p, b.n, &back, NULL), 0);
    assert_string_equal(back.tail, r.tail);
}

UNIT_TEST(host_names_that_would_break_a_hostfile_are_refused)
{
    static const char *const bad[] = {"", "a b", "a\nb", "a,b", "a/b", "\xc3\xa4"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err err = ERR_INIT;
        struct hello h = {0}, back;
        CLEANUP(strbuf_release) struct strbuf b;
        strcpy(h.host, bad[i]);
        strbuf_init(&b, 1000);
        hello_write(&h, &b);
        assert_int_equal(hello_read((const uint8_t *)b.p, b.n, &back, &err), -EPROTO);
    }
}

/* horovodrun's hosts have names and slots of their own. */
UNIT_TEST(a_known_host_is_named_with_its_ranks)
{
    CLEANUP(meet_release) struct meet m;
    CLEANUP(hostlist_release) struct hostlist hosts;
    struct err err = ERR_INIT;
    hostlist_init(&hosts);
    assert_int_equal(hostlist_append(&hosts, "big", 8, &err), 0);
    assert_int_equal(hostlist_append(&hosts, "small", 1, &err), 0);
    assert_int_equal(hostlist_append(&hosts, "last", 4, &err), 0);
    assert_int_equal(meet_init(&m, 3, 0, 0, 60, 0, &err), 0);
    meet_know_hosts(&m, &hosts, 11);
    meet_set_ready(&m, 0);
    meet_set_ready(&m, 2);
    assert_int_equal(meet_due(&m, 1, 0), MEET_WAITING);
    meet_set_ready(&m, 1);
    assert_int_equal(meet_due(&m, 1, 0), MEET_RUNNING);
    meet_enter(&m, MEET_RUNNING);
    meet_lost(&m, 2, "silent for 1 s", 1, 0);
    assert_int_equal(meet_due(&m, 1, S), MEET_STOPPED);
    const struct report *r = meet_first(&m);
    assert_string_equal(r->f.why, "host last was lost: silent for 1 s");
    assert_string_equal(r->f.host, "last");
    assert_int_equal(r->first_rank, 9);
    assert_int_equal(r->n_ranks, 2);
}

UNIT_MAIN(NULL, NULL)
