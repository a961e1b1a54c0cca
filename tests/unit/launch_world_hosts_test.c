/* SPDX-License-Identifier: Apache-2.0 */
/* world_hosts.c: the hosts of a job, from the name of worker 0. */
#include "runtime/launch/world_hosts.h"

#include <errno.h>
#include <stdio.h>

#include "runtime/base/mem.h"
#include "tests/unit/unit.h"

static int hosts_of(const char *first,
                    uint32_t workers,
                    uint32_t slots,
                    struct strbuf *out,
                    struct err *err)
{
    const struct job_world w = {2, workers};
    struct agent_env a = {.slots = slots};

    (void)snprintf(a.checkin_addr, sizeof(a.checkin_addr), "%s", first);
    strbuf_init(out, 4096);
    return world_hosts_write(&a, &w, out, err);
}

UNIT_TEST(the_names_of_all_workers_follow_from_that_of_the_first)
{
    static const struct {
        const char *first;
        uint32_t workers, slots;
        const char *want;
    } rows[] = {
        {"demo-worker-0.demo.ns.svc", 1, 8, "demo-worker-0.demo.ns.svc:8\n"},
        {"demo-worker-0.demo.ns.svc.cluster.local", 2, 1,
         "demo-worker-0.demo.ns.svc.cluster.local:1\n"
         "demo-worker-1.demo.ns.svc.cluster.local:1\n"},
        {"a-worker-0-worker-0.a-worker-0.b.svc", 2, 4,
         "a-worker-0-worker-0.a-worker-0.b.svc:4\n"
         "a-worker-0-worker-1.a-worker-0.b.svc:4\n"},
        {"demo-worker-0.demo.ns.svc", 0, 1, ""},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(strbuf_release) struct strbuf out = {0};
        struct err err = ERR_INIT;

        assert_int_equal(
            hosts_of(rows[i].first, rows[i].workers, rows[i].slots, &out, &err), 0);
        assert_string_equal(strbuf_str(&out), rows[i].want);
    }
}

UNIT_TEST(another_name_is_refused)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct err err = ERR_INIT;

    assert_int_equal(hosts_of("10.0.0.1", 2, 1, &out, &err), -EINVAL);
    assert_string_equal(err.text,
                        "HVD_CHECKIN_ADDR: 10.0.0.1 is not the name of worker "
                        "0, JOB-worker-0.JOB.NAMESPACE.svc");
}

UNIT_MAIN(NULL, NULL)
