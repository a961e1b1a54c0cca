/* SPDX-License-Identifier: Apache-2.0 */
/* Queue, token bucket and reflector: everything that takes time as an argument. */
#include "tests/unit/unit.h"

#include "operator/core/queue.h"
#include "operator/core/reflector.h"
#include "operator/kube/limit.h"
#include "runtime/base/mem.h"

UNIT_TEST(a_key_is_queued_once_and_never_taken_twice)
{
    struct work_queue *q = queue_new();

    assert_int_equal(queue_next_ns(q, 8), UINT64_MAX);
    assert_int_equal(queue_add(q, "a", 10), 0);
    assert_int_equal(queue_add(q, "a", 5), 0);
    assert_int_equal(queue_add(q, "a", 20), 0);
    assert_int_equal(queue_depth(q), 1);
    assert_int_equal(queue_next_ns(q, 8), 5); /* the earlier wish wins */
    assert_null(queue_take(q, 4, 8));
    assert_string_equal(queue_take(q, 5, 8), "a");
    assert_int_equal(queue_add(q, "a", 6), 0); /* while at work */
    assert_null(queue_take(q, 100, 8));
    assert_int_equal(queue_next_ns(q, 8), UINT64_MAX);
    assert_int_equal(queue_done(q, "a", false, 7), 0);
    assert_string_equal(queue_take(q, 7, 8), "a"); /* the wish was remembered */
    assert_int_equal(queue_done(q, "a", false, 8), 0);
    assert_null(queue_take(q, 1000, 8));
    assert_int_equal(queue_depth(q), 0);
    queue_free(q);
}

UNIT_TEST(waits_and_failures_of_a_key_are_counted)
{
    struct work_queue *q = queue_new();

    (void)queue_add(q, "a", 10);
    (void)queue_add(q, "b", 0);
    assert_int_equal(queue_waited_ns(q, "a"), 0);
    assert_string_equal(queue_take(q, 15, 8), "b");
    assert_string_equal(queue_take(q, 17, 8), "a");
    assert_int_equal(queue_waited_ns(q, "a"),
                     7); /* since it was due, not since added */
    assert_int_equal(queue_waited_ns(q, "b"), 15);
    assert_int_equal(queue_n_failures(q, "a"), 0);
    (void)queue_done(q, "a", true, 20);
    assert_int_equal(queue_n_failures(q, "a"), 1);
    assert_string_equal(queue_take(q, 20 + QUEUE_FIRST_RETRY_NS, 8), "a");
    assert_int_equal(queue_waited_ns(q, "a"), 0); /* the back-off is no waiting */
    (void)queue_done(q, "a", true, 20 + QUEUE_FIRST_RETRY_NS);
    assert_int_equal(queue_n_failures(q, "a"), 2);
    (void)queue_take(q, UINT64_MAX - 1, 8);
    (void)queue_add(q, "a", 0);
    (void)queue_done(q, "a", false, 0);
    assert_int_equal(queue_n_failures(q, "a"), 0);
    assert_int_equal(queue_n_failures(q, "unknown"), 0);
    assert_int_equal(queue_waited_ns(q, "unknown"), 0);
    queue_free(q);
}

UNIT_TEST(the_key_that_waited_longest_is_taken_first)
{
    struct work_queue *q = queue_new();

    (void)queue_add(q, "late", 30);
    (void)queue_add(q, "early", 10);
    (void)queue_add(q, "middle", 20);
    assert_string_equal(queue_take(q, 100, 8), "early");
    assert_string_equal(queue_take(q, 100, 8), "middle");
    assert_string_equal(queue_take(q, 100, 8), "late");
    queue_free(q);
}

UNIT_TEST(no_namespace_delays_others)
{
    struct work_queue *q = queue_new();
    const char *key;

    for (char name[] = "many/a"; name[5] < 'k'; name[5]++)
        (void)queue_add(q, name, (uint64_t)name[5]);
    assert_string_equal(queue_take(q, 1000, 2), "many/a");
    (void)queue_add(q, "mpijob:many/x", 500); /* another kind, another share */
    (void)queue_add(q, "one/x", 600);
    assert_string_equal(queue_take(q, 1000, 2), "mpijob:many/x");
    assert_string_equal(queue_take(q, 1000, 2), "one/x");
    assert_string_equal(queue_take(q, 1000, 2), "many/b");
    assert_null(queue_take(q, 1000, 2));
    assert_int_equal(queue_next_ns(q, 2), UINT64_MAX); /* the loop does not spin */
    assert_int_equal(queue_next_ns(q, 3), 'c');
    assert_null(queue_take(q, 1000, 0));
    (void)queue_done(q, "many/a", false, 1000);
    assert_int_equal(queue_next_ns(q, 2), 'c');
    assert_string_equal(queue_take(q, 1000, 2), "many/c");
    while ((key = queue_take(q, 1000, 100)))
        (void)queue_done(q, key, false, 1000);
    queue_free(q);
}

UNIT_TEST(swept_keys_are_taken_last)
{
    struct work_queue *q = queue_new();

    (void)queue_sweep(q, "a/swept", 5);
    (void)queue_sweep(q, "a/swept", 1); /* after a second list */
    (void)queue_sweep(q, "a/both", 2);
    (void)queue_add(q, "a/added", 4);
    (void)queue_add(q, "a/both", 3);    /* something has happened to it */
    (void)queue_sweep(q, "a/added", 1); /* which this does not take back */
    assert_string_equal(queue_take(q, 9, 8), "a/added");
    assert_string_equal(queue_take(q, 9, 8), "a/both");
    assert_string_equal(queue_take(q, 9, 8), "a/swept");
    (void)queue_done(q, "a/swept", true, 9);
    (void)queue_add(q, "a/later", 10 + QUEUE_FIRST_RETRY_NS);
    assert_string_equal(queue_take(q, UINT64_MAX - 1, 8), "a/swept"); /* once */
    queue_free(q);
}

UNIT_TEST(failures_back_off_up_to_a_bound_and_success_resets_it)
{
    struct work_queue *q = queue_new();
    uint64_t now = 0, want = QUEUE_FIRST_RETRY_NS;

    (void)queue_add(q, "a", 0);
    for (int i = 0; i < 20; i++) {
        assert_non_null(queue_take(q, now, 8));
        (void)queue_add(q, "a", now); /* an event does not break the back-off */
        assert_int_equal(queue_done(q, "a", true, now), want);
        assert_null(queue_take(q, now + want - 1, 8));
        now += want;
        want = want * 2 > QUEUE_MAX_RETRY_NS ? QUEUE_MAX_RETRY_NS : want * 2;
    }
    assert_non_null(queue_take(q, now, 8));
    assert_int_equal(queue_done(q, "a", false, now), 0);
    (void)queue_add(q, "a", now);
    assert_non_null(queue_take(q, now, 8));
    assert_int_equal(queue_done(q, "a", true, now), QUEUE_FIRST_RETRY_NS);
    queue_free(q);
}

UNIT_TEST(the_bucket_allows_a_burst_and_then_the_rate)
{
    uint64_t now = 1000000000000ull;
    struct limit l;

    limit_init(&l, 10, 5, now);
    for (int i = 0; i < 5; i++)
        assert_true(limit_take(&l, now));
    assert_false(limit_take(&l, now));
    assert_int_equal(limit_ready_ns(&l), now + 100000000u);
    assert_true(limit_take(&l, now + 100000000u));
    assert_false(limit_take(&l, now + 100000001u));
    now += 3600000000000ull; /* an hour saves up no more than the burst */
    for (int i = 0; i < 5; i++)
        assert_true(limit_take(&l, now));
    assert_false(limit_take(&l, now));
    limit_throttled(&l, now, 7); /* Retry-After: 7 */
    assert_false(limit_take(&l, now + 6999999999u));
    assert_true(limit_take(&l, now + 7000000000u));
}

/* every pair, those without an edge too */
UNIT_TEST(the_reflector_takes_each_edge_and_no_other)
{
    static const enum refl_state same = (enum refl_state)99;
    static const enum refl_state want[REFL_STATE_COUNT][REFL_EVENT_COUNT] = {
        [REFL_LISTING] = {REFL_WATCHING, same, REFL_BACKOFF, REFL_BACKOFF, same, same},
        [REFL_WATCHING] = {same, REFL_WATCHING, REFL_LISTING, REFL_BACKOFF, same,
                           REFL_BACKOFF},
        [REFL_BACKOFF] = {same, same, same, same, REFL_WATCHING, same},
    };

    for (int s = 0; s < REFL_STATE_COUNT; s++) {
        for (int e = 0; e < REFL_EVENT_COUNT; e++) {
            struct reflector r, before;
            enum refl_state got;

            reflector_init(&r);
            r.state = (enum refl_state)s;
            before = r;
            got = reflector_next(&r, (enum refl_event)e, 0, 1000, 0);
            if (want[s][e] == same) {
                assert_int_equal(got, s);
                assert_memory_equal(&r, &before, sizeof(r));
            } else {
                assert_int_equal(got, want[s][e]);
            }
        }
    }
}

UNIT_TEST(the_reflector_backs_off_longer_and_resumes_where_it_was)
{
    struct reflector r;
    uint64_t last = 0;

    reflector_init(&r);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(reflector_next(&r, REFL_ERROR, 0, 0, 0), REFL_BACKOFF);
        assert_true(r.wake_ns >= last);
        assert_true(r.wake_ns <= REFL_MAX_BACKOFF_NS);
        last = r.wake_ns;
        assert_int_equal(reflector_next(&r, REFL_TIMER, 0, 0, 0), REFL_LISTING);
    }
    assert_int_equal(last, REFL_MAX_BACKOFF_NS);
    assert_int_equal(reflector_next(&r, REFL_LISTED, 0, 0, 0), REFL_WATCHING);
    assert_int_equal(reflector_next(&r, REFL_ERROR, 0, 0, UINT32_MAX), REFL_BACKOFF);
    assert_int_equal(r.wake_ns,
                     REFL_FIRST_BACKOFF_NS * 3 / 2); /* afresh, full jitter */
    assert_int_equal(reflector_next(&r, REFL_TIMER, 0, 0, 0), REFL_WATCHING);
    assert_int_equal(reflector_next(&r, REFL_ERROR, 1, 0, 0), REFL_BACKOFF);
    assert_int_equal(r.wake_ns, 2 * REFL_FIRST_BACKOFF_NS); /* it could not be opened */
    assert_int_equal(reflector_next(&r, REFL_TIMER, 0, 0, 0), REFL_WATCHING);
    assert_int_equal(reflector_next(&r, REFL_ERROR, 0, 0, 0), REFL_BACKOFF);
    assert_int_equal(r.wake_ns, REFL_FIRST_BACKOFF_NS); /* it was cut after a while */
    assert_int_equal(reflector_next(&r, REFL_TIMER, 0, 0, 0), REFL_WATCHING);
}

UNIT_TEST(a_watch_that_ends_at_once_is_backed_off)
{
    struct reflector r;

    reflector_init(&r);
    (void)reflector_next(&r, REFL_LISTED, 0, 0, 0);
    assert_int_equal(reflector_next(&r, REFL_WATCH_END, 0, 0, 0), REFL_WATCHING);
    assert_int_equal(reflector_next(&r, REFL_WATCH_END, 1, 0, 0), REFL_BACKOFF);
    assert_int_equal(reflector_next(&r, REFL_TIMER, 0, 0, 0), REFL_WATCHING);
    assert_int_equal(reflector_next(&r, REFL_SILENT, 0, 0, 0), REFL_BACKOFF);
    assert_int_equal(reflector_next(&r, REFL_TIMER, 0, 0, 0), REFL_LISTING);
}

/* List, 410, list, 410: what a list says must not be forgotten at once. */
UNIT_TEST(a_version_that_expires_right_after_its_list_is_backed_off)
{
    struct reflector r;
    uint64_t last = 0;

    reflector_init(&r);
    (void)reflector_next(&r, REFL_LISTED, 0, 0, 0);
    assert_int_equal(reflector_next(&r, REFL_EXPIRED, 1, 0, 0), REFL_LISTING);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(reflector_next(&r, REFL_LISTED, 0, 0, 0), REFL_WATCHING);
        assert_int_equal(reflector_next(&r, REFL_EXPIRED, 1, 0, 0), REFL_BACKOFF);
        assert_true(r.wake_ns > last || last == REFL_MAX_BACKOFF_NS);
        last = r.wake_ns;
        assert_int_equal(reflector_next(&r, REFL_TIMER, 0, 0, 0), REFL_LISTING);
    }
    (void)reflector_next(&r, REFL_LISTED, 0, 0, 0);
    assert_int_equal(reflector_next(&r, REFL_WATCH_END, 0, 0, 0), REFL_WATCHING);
    assert_int_equal(reflector_next(&r, REFL_EXPIRED, 1, 0, 0), REFL_LISTING);
}

/* How many requests of a full queue go out in a second from now_ns on. */
static unsigned limit_count_in_a_second(struct limit *l, uint64_t now_ns)
{
    unsigned n = 0;

    for (uint64_t t = now_ns; t < now_ns + 1000000000u; t += 1000000u)
        n += limit_take(l, t);
    return n;
}

UNIT_TEST(the_rate_is_halved_by_429_and_recovers)
{
    const uint64_t s = 1000000000u;
    uint64_t now = 1000 * s;
    struct limit l;

    limit_init(&l, 64, 1, now);
    assert_in_range(limit_count_in_a_second(&l, now), 61, 65);
    now += s;
    limit_throttled(&l, now, 0);
    for (int i = 0; i < 5; i++) /* the other requests under way: no news */
        limit_throttled(&l, now + 1000, 0);
    assert_false(limit_take(&l, now + s - 1));
    now += 3 * s;
    assert_in_range(limit_count_in_a_second(&l, now), 30, 33);
    now += s;
    limit_throttled(&l, now, 100000); /* it asks for more than we believe */
    assert_true(limit_ready_ns(&l) <= now + LIMIT_MAX_PAUSE_S * s);
    now += LIMIT_MAX_PAUSE_S * s;
    assert_in_range(limit_count_in_a_second(&l, now), 15, 17);
    now += 10 * s;
    assert_in_range(limit_count_in_a_second(&l, now), 30, 33);
    now += 10 * s;
    assert_in_range(limit_count_in_a_second(&l, now), 61, 65);
    for (int i = 0; i < 20; i++, now += 100 * s)
        limit_throttled(&l, now, 1);
    assert_int_equal(l.slow, LIMIT_MAX_SLOW);
    assert_in_range(limit_count_in_a_second(&l, now), 61, 65); /* long ago: forgotten */
}

UNIT_MAIN(NULL, NULL)
