/* SPDX-License-Identifier: Apache-2.0 */
/* Shared answers, with a clock of our own. */
#include "runtime/base/mem.h"
#include "runtime/launch/core/answer.h"
#include "tests/unit/unit.h"

enum { SCRAPES = 64, TICKS = 400 };
#define TICK_NS (NS_PER_S / 10)
#define HOLD_NS (10 * NS_PER_S)

static struct answer *answer_get(struct answers *s, uint64_t now_ns)
{
    struct answer *a = answers_find(s, now_ns);

    if (!a) {
        a = mem_zalloc(sizeof(*a));
        assert_non_null(a);
        answers_add(s, a, now_ns);
    }
    answer_join(a);
    return a;
}

static size_t answers_count(struct answer *const *of, const bool *is_busy)
{
    size_t n = 0;

    for (size_t i = 0; i < SCRAPES; i++) {
        size_t k = 0;

        while (k < i && !(is_busy[k] && of[k] == of[i]))
            k++;
        n += is_busy[i] && k == i;
    }
    return n;
}

UNIT_TEST(a_scrape_without_others_gets_a_new_answer)
{
    struct answers s = {0};
    struct answer *a = answer_get(&s, 1);

    answers_leave(&s, a);
    assert_null(answers_find(&s, 1));
}

UNIT_TEST(an_answer_is_shared_for_a_while)
{
    struct answers s = {0};
    struct answer *a = answer_get(&s, 5), *b = answer_get(&s, 4 + ANSWER_SHARE_NS), *c;

    assert_ptr_equal(a, b);
    c = answer_get(&s, 5 + ANSWER_SHARE_NS);
    assert_ptr_not_equal(a, c);
    answers_leave(&s, a);
    answers_leave(&s, b);
    assert_ptr_equal(answers_find(&s, 6 + ANSWER_SHARE_NS), c);
    answers_leave(&s, c);
}

/* Each tick a client comes that reads nothing until it is dropped. */
UNIT_TEST(slow_clients_keep_few_answers)
{
    struct answers s = {0};
    struct answer *of[SCRAPES] = {NULL};
    bool is_busy[SCRAPES] = {false};
    uint64_t ends_ns[SCRAPES] = {0}, now_ns = 1;
    size_t most = 0;

    for (int tick = 0; tick < TICKS; tick++, now_ns += TICK_NS) {
        bool is_placed = false;

        for (size_t i = 0; i < SCRAPES; i++) {
            if (is_busy[i] && now_ns >= ends_ns[i]) {
                answers_leave(&s, of[i]);
                is_busy[i] = false;
            }
            if (!is_busy[i] && !is_placed) {
                of[i] = answer_get(&s, now_ns);
                ends_ns[i] = now_ns + HOLD_NS;
                is_busy[i] = is_placed = true;
            }
        }
        size_t n = answers_count(of, is_busy);
        most = n > most ? n : most;
    }
    assert_true(most > 1 && most <= HOLD_NS / ANSWER_SHARE_NS + 2);
    for (size_t i = 0; i < SCRAPES; i++) {
        if (is_busy[i])
            answers_leave(&s, of[i]);
    }
}

UNIT_MAIN(NULL, NULL)
