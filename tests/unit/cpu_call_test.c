/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the cpu backend: members that have nothing to do join an agreement, whether
 * they poll, sleep on their wake-up sockets or are on other hosts; threads as members.
 * A lost call fails at the deadline. */
#include <poll.h>

#include "tests/unit/unit.h"

#include "tests/unit/cpu_party.h"

static int
call_until_done(struct backend *b, bool dozes, struct party *p, struct err *err)
{
    uint64_t word;
    return agree_until_done(b, &word, dozes ? 2 * NS_PER_MS : 0, p->deadline_ns, err);
}

static bool is_readable(const int fds[2], int timeout_ms)
{
    struct pollfd f[2] = {{.fd = fds[0], .events = POLLIN},
                          {.fd = fds[1], .events = POLLIN}};
    return poll(f, 2, timeout_ms) > 0;
}

/* Until it is called, by polling, or by sleeping in between. */
static int await_call(struct backend *b,
                      bool sleeps,
                      enum agree_call want,
                      struct party *p,
                      struct err *err)
{
    int fds[2];
    if (backend_cpu.agree_wakeup_fds(b, fds, err) < 0)
        return -1;
    while (clock_now_ns() < p->deadline_ns) {
        if (backend_cpu.agree_call_state(b) >= want)
            return 0;
        if (!sleeps) {
            sched_yield();
            continue;
        }
        if (backend_cpu.agree_arm_wakeup(b, want, NULL, 0) < want
            && !is_readable(fds, clock_left_ms(p->deadline_ns)))
            break;
        (void)backend_cpu.agree_disarm_wakeup(b);
    }
    return err_set(err, -ETIMEDOUT, "not called before the deadline");
}

static int call_sum(struct backend *b, uint64_t n, struct err *err)
{
    float *x = calloc(n, sizeof(*x));
    int rc = sum_run(b, DT_F32, x, n, err);
    free(x);
    return rc;
}

/* One member begins and calls, the rest poll or sleep; now and then there is a batch
 * between two agreements, which must not be taken for a call. */
static int body_calls(struct backend *b, uint32_t me, struct party *p, char *said)
{
    struct err err = ERR_INIT;
    int fds[2], rc = backend_cpu.agree_wakeup_fds(b, fds, &err);
    if (rc < 0)
        return party_fails(b, said, "wake-up sockets", 0, &err);
    for (uint32_t k = 0; k < p->n_rounds; k++) {
        uint64_t how = word_mix(k + 9), mine = word_mix(how + me), word = 1;
        if (how % p->size != me)
            rc = await_call(b, mine % 3 > 0, CALL_CALLED, p, &err);
        if (rc == 0)
            rc = backend_cpu.agree_begin(b, &word, 1, &err);
        if (rc == 0) {
            backend_cpu.agree_call(b);
            rc = call_until_done(b, mine % 2, p, &err);
        }
        if (rc == 0 && how % 5 == 0)
            rc = call_sum(b, how % 1000 + 1, &err);
        if (rc < 0)
            return party_fails(b, said, "call", k, &err);
    }
    return 0;
}

UNIT_TEST(idle_member_receives_call)
{
    static const char *const one_host[] = {"a", "aa", "aaa", "aaaa", "aaaaa"};
    static const char *const more[] = {"ab", "abc", "abcd", "abcde", "aababc"};
    for (size_t i = 0; i < ARRAY_LEN(one_host); i++)
        party_run(one_host[i], body_calls, 400);
    for (size_t i = 0; i < ARRAY_LEN(more); i++)
        party_run(more[i], body_calls, 300);
}

/* Member 0 begins and does not call: member 1, which waits for something, is woken;
 * member 2, which does not wait, is woken only when member 1 calls. */
static int body_started(struct backend *b, uint32_t me, struct party *p, char *said)
{
    struct err err = ERR_INIT;
    uint64_t word = 1;
    int fds[2], rc = backend_cpu.agree_wakeup_fds(b, fds, &err);
    for (uint32_t k = 0; k < p->n_rounds && rc == 0; k++) {
        if (me == 1) {
            rc = await_call(b, k % 2, CALL_STARTED, p, &err);
        } else if (me == 2) {
            bool is_called =
                backend_cpu.agree_arm_wakeup(b, CALL_CALLED, NULL, 0) == CALL_CALLED;
            wait_for(&p->n_at, p->size + 2 * k + 1,
                     p->deadline_ns); /* 1 has been woken */
            if (is_called || is_readable(fds, 0))
                rc = err_set(&err, -EPROTO, "woken without a call");
            atomic_fetch_add(&p->n_at, 1);
            if (rc == 0)
                rc = await_call(b, true, CALL_CALLED, p, &err);
        }
        if (rc == 0)
            rc = backend_cpu.agree_begin(b, &word, 1, &err);
        if (me == 1 && rc == 0) {
            atomic_fetch_add(&p->n_at, 1);
            wait_for(&p->n_at, p->size + 2 * k + 2, p->deadline_ns); /* 2 has polled */
            backend_cpu.agree_call(b);
        }
        if (rc == 0)
            rc = call_until_done(b, k % 3 == 0, p, &err);
        if (rc == 0) /* all members start the next round with a wake-up armed */
            rc = call_sum(b, 1, &err);
    }
    return rc < 0 ? party_fails(b, said, "started", 0, &err) : 0;
}

UNIT_TEST(waiting_member_receives_agreements_others_only_calls)
{
    party_run("aaa", body_started, 200);
}

/* The last members never join by themselves: other members count their words, or find
 * them back, in which case they continue from the last agreement that they were counted
 * in. Their bit 2 is 0, other members clear one more each: all get the same result, and
 * a member that was counted gets the last one. A plan, and with it the tag and the
 * number of words, lasts for only 5 agreements: a member that is still in the last one
 * of a plan must find the words that were counted there. */
enum { STANDS = ~4ull, A_PLAN = 5 };

static uint64_t said_by(uint32_t me, uint32_t round)
{
    return ~(8ull << (word_mix(round * 8 + me) % 40));
}

static uint32_t first_posted_words(const struct party *p)
{
    return p->size > 3 ? p->size - 2 : p->size - 1;
}

/* Of the agreement after seq. */
static uint32_t tag_after(struct backend *b, uint32_t seq)
{
    backend_cpu.agree_tag(b, 1 + seq / A_PLAN);
    return 1 + seq / A_PLAN % 7;
}

/* Whether there is an agreement to join. *ret_is_in: it has been counted in that. */
static bool is_called_asleep(
    struct backend *b, uint32_t me, const uint64_t *words, uint32_t n, bool *ret_is_in)
{
    uint32_t seq = ((struct cpu *)b)->agree.seq;
    bool is_called =
        backend_cpu.agree_arm_wakeup(b, CALL_CALLED, words, n) == CALL_CALLED;
    for (uint64_t i = word_mix(seq + me) % 50; i > 0 && !is_called; i--)
        sched_yield();
    *ret_is_in = backend_cpu.agree_disarm_wakeup(b);
    return *ret_is_in || backend_cpu.agree_call_state(b) == CALL_CALLED;
}

static int
body_posted_words(struct backend *b, uint32_t me, struct party *p, char *said)
{
    struct err err = ERR_INIT;
    const uint32_t last = first_posted_words(p);
    struct agree *a = &((struct cpu *)b)->agree;
    int fds[2], rc = backend_cpu.agree_wakeup_fds(b, fds, &err);
    while (rc == 0 && a->seq < p->n_rounds) {
        uint32_t n = tag_after(b, a->seq);
        uint64_t mine[7], all[7] = {0}, want = STANDS;
        bool is_in = false;
        for (uint32_t i = 0; i < n; i++)
            mine[i] = me >= last ? STANDS : said_by(me, a->seq);
        if (me >= last && !is_called_asleep(b, me, mine, n, &is_in))
            continue;
        if (!is_in) {
            rc = backend_cpu.agree_begin(b, mine, n, &err);
            backend_cpu.agree_call(b);
        }
        if (rc == 0)
            rc = agree_until_done(b, all, word_mix(a->seq + me) % 4 ? 0 : NS_PER_MS,
                                  p->deadline_ns, &err);
        for (uint32_t j = 0; j < last; j++)
            want &= said_by(j, a->seq - 1);
        for (uint32_t i = 0; i < n && rc == 0; i++)
            if (all[i] != want)
                rc = err_set(&err, -EPROTO, "agreed on %llx, not %llx",
                             (unsigned long long)all[i], (unsigned long long)want);
    }
    return rc < 0 ? party_fails(b, said, "proxy words", a->seq, &err) : 0;
}

UNIT_TEST(member_without_words_is_counted)
{
    static const char *const one_host[] = {"aa", "aaa", "aaaa", "aaaaa"};
    for (size_t i = 0; i < ARRAY_LEN(one_host); i++)
        party_run(one_host[i], body_posted_words, 3000);
    party_run("baba", body_posted_words, 1000); /* there by its leader */
}

/* No call: nothing happened, an agreement of our own, a broken communicator. */
static int body_nothing(struct backend *b, uint32_t me, struct party *p, char *said)
{
    struct err err = ERR_INIT;
    uint64_t word = 1;
    int fds[2], again[2];
    bool is_good = backend_cpu.agree_call_state(b) == CALL_NONE
                   && backend_cpu.agree_wakeup_fds(b, fds, &err) == 0
                   && backend_cpu.agree_wakeup_fds(b, again, &err) == 0
                   && fds[0] == again[0] && fds[1] == again[1]
                   && backend_cpu.agree_arm_wakeup(b, CALL_CALLED, NULL, 0) == CALL_NONE
                   && !is_readable(fds, 0);
    backend_cpu.agree_call(b); /* there is no current agreement */
    (void)me;
    if (!is_good || backend_cpu.agree_begin(b, &word, 1, &err) < 0
        || backend_cpu.agree_call_state(b) != CALL_NONE
        || call_until_done(b, false, p, &err) < 0)
        return party_fails(b, said, "nothing", 0, &err);
    return 0;
}

UNIT_TEST(nothing_is_received_without_a_call)
{
    party_run("a", body_nothing, 0);
}

UNIT_MAIN(NULL, NULL)
