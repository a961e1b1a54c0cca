/* SPDX-License-Identifier: Apache-2.0 */
/* A launcher's processes as TensorFlow's tasks: roles, addresses, TF_CONFIG, and the
 * ports that hosts derive from the token. */
#include <errno.h>

#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "runtime/contract/tf_world.h"
#include "runtime/contract/port.h"

UNIT_TEST(roles_of_the_processes)
{
    static const struct {
        struct tf_roles roles;
        uint32_t np, n[TF_ROLE_COUNT];
    } t[] = {
        {{FRAMEWORK_HVD, 0, false}, 4, {0, 0, 0, 0}},
        {{FRAMEWORK_TF_MULTIWORKER, 0, false}, 1, {0, 1, 0, 0}},
        {{FRAMEWORK_TF_MULTIWORKER, 0, true}, 3, {0, 2, 0, 1}},
        {{FRAMEWORK_TF_PS, 0, false}, 3, {1, 1, 1, 0}},
        {{FRAMEWORK_TF_PS, 0, false}, 4, {1, 2, 1, 0}},
        {{FRAMEWORK_TF_PS, 2, true}, 8, {1, 4, 2, 1}},
    };
    struct err err = ERR_INIT;

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        uint32_t n[TF_ROLE_COUNT];

        assert_int_equal(tf_roles_count(&t[i].roles, t[i].np, n, &err), 0);
        assert_memory_equal(n, t[i].n, sizeof(n));
    }
}

UNIT_TEST(roles_that_do_not_fit_are_refused)
{
    static const struct {
        struct tf_roles roles;
        uint32_t np;
        const char *text;
    } t[] = {
        {{FRAMEWORK_HVD, 1, false}, 4, "horovod has no parameter servers, not 1"},
        {{FRAMEWORK_TF_MULTIWORKER, 2, false}, 4, "has no parameter servers, not 2"},
        {{FRAMEWORK_HVD, 0, true}, 4, "framework horovod has no evaluator"},
        {{FRAMEWORK_TF_MULTIWORKER, 0, true}, 1, "needs at least 2 processes"},
        {{FRAMEWORK_TF_PS, 0, false},
         2,
         "framework tf-ps needs at least 3 processes (one chief, one worker, 1 ps), "
         "not "
         "2"},
        {{FRAMEWORK_TF_PS, UINT32_MAX, true}, 9, "at least 4294967298 processes"},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct err err = ERR_INIT;
        uint32_t n[TF_ROLE_COUNT];

        assert_int_equal(tf_roles_count(&t[i].roles, t[i].np, n, &err), -EINVAL);
        if (!strstr(err.text, t[i].text))
            fail_msg("%s", err.text);
    }
}

UNIT_TEST(framework_names)
{
    struct err err = ERR_INIT;
    enum framework f;

    for (uint32_t i = 0; i < FRAMEWORK_COUNT; i++) {
        assert_int_equal(framework_parse(framework_name((enum framework)i), &f, &err),
                         0);
        assert_int_equal(f, i);
    }
    assert_int_equal(framework_parse("tf", &f, &err), -EINVAL);
    assert_string_equal(err.text,
                        "framework \"tf\" is not horovod, tf-multiworker or tf-ps");
}

static struct hostlist make_hosts(const char *text)
{
    struct hostlist list;
    struct err err = ERR_INIT;

    hostlist_init(&list);
    assert_int_equal(hostlist_parse_hosts(text, &list, &err), 0);
    return list;
}

static void config_is(const struct tf_world *world,
                      uint32_t host,
                      uint32_t local_rank,
                      const char *want)
{
    const struct place place = {.host = host, .local_rank = local_rank};
    CLEANUP(strbuf_release) struct strbuf text;
    struct err err = ERR_INIT;

    strbuf_init(&text, TF_CONFIG_MAX_BYTES);
    if (tf_world_config(world, &place, &text, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(strbuf_str(&text), want);
}

#define PS_CLUSTER                                                                     \
    "{\"cluster\": {\"chief\": [\"a:29998\"], \"worker\": [\"a:29999\", "              \
    "\"[::2]:20000\"], \"ps\": [\"c:20001\"]}, \"task\": "

UNIT_TEST(tasks_are_counted_host_by_host)
{
    CLEANUP(hostlist_release) struct hostlist list = make_hosts("a:2,[::2]:1,c:4");
    struct tf_world world = {
        .roles = {FRAMEWORK_TF_PS, 1, true}, .hosts = &list, .np = 5, .ports = 29998};

    config_is(&world, 0, 0, PS_CLUSTER "{\"type\": \"chief\", \"index\": 0}}");
    config_is(&world, 0, 1, PS_CLUSTER "{\"type\": \"worker\", \"index\": 0}}");
    config_is(&world, 1, 0, PS_CLUSTER "{\"type\": \"worker\", \"index\": 1}}");
    config_is(&world, 2, 0, PS_CLUSTER "{\"type\": \"ps\", \"index\": 0}}");
    config_is(&world, 2, 1, PS_CLUSTER "{\"type\": \"evaluator\", \"index\": 0}}");
    world = (struct tf_world){.roles = {.framework = FRAMEWORK_TF_MULTIWORKER},
                              .hosts = &list,
                              .np = 2,
                              .ports = 20007};
    config_is(&world, 0, 1,
              "{\"cluster\": {\"worker\": [\"a:20007\", \"a:20008\"]}, \"task\": "
              "{\"type\": \"worker\", \"index\": 1}}");
}

UNIT_TEST(a_process_outside_the_job_and_a_text_too_long_are_refused)
{
    CLEANUP(hostlist_release) struct hostlist list = make_hosts("a:2,b:2");
    struct tf_world world = {.roles = {.framework = FRAMEWORK_TF_PS},
                             .hosts = &list,
                             .np = 3,
                             .ports = 20000};
    static const struct place outside[] = {{.host = 1, .local_rank = 1}, {.host = 2}};
    CLEANUP(strbuf_release) struct strbuf text;
    struct err err = ERR_INIT;

    strbuf_init(&text, 40);
    for (size_t i = 0; i < ARRAY_LEN(outside); i++)
        assert_int_equal(tf_world_config(&world, &outside[i], &text, &err), -EINVAL);
    world.np = 5;
    assert_int_equal(tf_world_config(&world, &(struct place){.host = 0}, &text, &err),
                     -EINVAL);
    world.np = 4;
    assert_int_equal(tf_world_config(&world, &(struct place){.host = 0}, &text, &err),
                     -E2BIG);
    assert_non_null(strstr(err.text, "TF_CONFIG of 4 processes is longer than"));
}

UNIT_TEST(only_the_chief_of_tf_ps_ends_the_job)
{
    struct tf_world world = {.roles = {.framework = FRAMEWORK_TF_PS}};
    const struct place chief = {.host = 0}, worker = {.host = 0, .local_rank = 1};

    assert_true(tf_world_ends_with(&world, &chief));
    assert_false(tf_world_ends_with(&world, &worker));
    assert_false(tf_world_ends_with(&world, &(struct place){.host = 1}));
    world.roles.framework = FRAMEWORK_TF_MULTIWORKER;
    assert_false(tf_world_ends_with(&world, &chief));
}

UNIT_TEST(ports_follow_from_the_token)
{
    const struct token a = {.key = {1}}, b = {.key = {2}};

    assert_int_equal(port_derive(&a, "x"), port_derive(&a, "x"));
    assert_int_not_equal(port_derive(&a, "x"), port_derive(&b, "x"));
    assert_int_not_equal(port_derive(&a, "x"), port_derive(&a, "y"));
    assert_in_range(port_derive(&a, "x"), 20000, 29999);
    assert_in_range(port_derive(&b, "x"), 20000, 29999);
    assert_int_equal(port_after(20005, 0), 20005);
    assert_int_equal(port_after(29999, 1), 20000);
    assert_int_equal(port_after(20005, 9999), 20004);
}

UNIT_MAIN(NULL, NULL)
