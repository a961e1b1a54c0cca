/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement of the cpu backend: threads as members (one host, several, mixed), for
 * ThreadSanitizer, and forked ranks of which one dies. */
#include <pthread.h>

#include "tests/unit/unit.h"

#include "tests/unit/cpu_party.h"
#include "tests/unit/cpu_world.h"
#include "tests/unit/timed.h"

static uint64_t word_of(uint32_t rank, uint32_t round, uint32_t i)
{
    uint64_t h = word_mix(((uint64_t)round << 32) + rank * 64 + i + 1);
    return ~((1ull << (h & 63)) | (1ull << (h >> 8 & 63)));
}

static int
agree_once(struct backend *b, uint32_t me, struct party *p, uint32_t round, char *said)
{
    uint64_t mine[AGREE_MAX_WORDS], all[AGREE_MAX_WORDS], how = word_mix(round + 77);
    uint32_t n = round % 5 == 0 ? AGREE_MAX_WORDS : (uint32_t)(how % 7) + 1;
    struct err err = ERR_INIT;
    if ((how >> 8) % 64 == 0 && (how >> 20) % p->size == me)
        backend_cpu.doze(b, 2 * NS_PER_MS); /* a late member */
    for (uint32_t i = 0; i < n; i++)
        mine[i] = word_of(me, round, i);
    if (backend_cpu.agree_begin(b, mine, n, &err) < 0)
        return party_fails(b, said, "begin", round, &err);
    memset(mine, 0, sizeof(mine)); /* it must not keep a pointer to our words */
    if (agree_until_done(b, all, (how >> 16) % 3 * 300000, p->deadline_ns, &err) < 0)
        return party_fails(b, said, "poll", round, &err);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t want = UINT64_MAX;
        for (uint32_t j = 0; j < p->size; j++)
            want &= word_of(j, round, i);
        if (all[i] != want)
            return party_fails(b, said, "wrong word", round, &err);
    }
    return 0;
}

static int
sum_once(struct backend *b, struct party *p, uint32_t round, uint64_t n, char *said)
{
    struct err err = ERR_INIT;
    float *x = malloc(n * sizeof(*x));
    bool is_sum = round % 3;
    for (uint64_t i = 0; i < n; i++)
        x[i] = (float)(round % 100);
    int rc = is_sum ? sum_run(b, DT_F32, x, n, &err) : barrier_run(b, &err);
    float want = (float)(round % 100) * (is_sum ? (float)p->size : 1);
    bool is_right = x[0] == want && x[n - 1] == want;
    free(x);
    if (rc < 0 || !is_right)
        return party_fails(b, said, "allreduce", round, &err);
    return 0;
}

static int body_rounds(struct backend *b, uint32_t me, struct party *p, char *said)
{
    for (uint32_t k = 0; k < p->n_rounds; k++) {
        int rc = agree_once(b, me, p, k, said);
        uint64_t how = word_mix(k + 5);
        if (rc == 0 && how % 4 == 0)
            rc = sum_once(b, p, k, how % 64 == 0 ? 40000 : how % 100 + 1, said);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int body_wrap(struct backend *b, uint32_t me, struct party *p, char *said)
{
    ((struct cpu *)b)->agree.seq = UINT32_MAX - 5;
    return body_rounds(b, me, p, said);
}

UNIT_TEST(agreement_ands_words)
{
    static const char *const one_host[] = {"a", "aa", "aaa", "aaaa", "aaaaa"};
    static const char *const more[] = {"ab", "abc", "abcd", "abcde", "aabb", "abacba"};
    for (size_t i = 0; i < ARRAY_LEN(one_host); i++)
        party_run(one_host[i], body_rounds, 2000);
    for (size_t i = 0; i < ARRAY_LEN(more); i++)
        party_run(more[i], body_rounds, 800);
}

UNIT_TEST(numbers_may_wrap)
{
    party_run("aaa", body_wrap, 20);
    party_run("aab", body_wrap, 20);
}

/* A process set agrees separately from its world. */
static int body_set(struct backend *b, uint32_t me, struct party *p, char *said)
{
    const uint32_t members[] = {0, 2, 3};
    struct backend *set = NULL;
    struct err err = ERR_INIT;
    int rc = 0;
    if (backend_cpu.subset(b, members, 3, p->deadline_ns, &set, &err) < 0)
        return party_fails(b, said, "subset", 0, &err);
    for (uint32_t k = 0; k < 100 && rc == 0; k++) {
        uint64_t mine = word_of(me, k, 0), got = 0;
        uint64_t want = word_of(0, k, 0) & word_of(2, k, 0) & word_of(3, k, 0);
        if (set
            && (backend_cpu.agree_begin(set, &mine, 1, &err) < 0
                || agree_until_done(set, &got, 300000, p->deadline_ns, &err) < 0))
            rc = party_fails(b, said, "set", k, &err);
        if (rc == 0 && set && got != want)
            rc = party_fails(b, said, "set's word", k, &err);
        if (rc == 0)
            rc = agree_once(b, me, p, k, said);
    }
    backend_cpu.close(set);
    return rc;
}

UNIT_TEST(process_set_agrees_apart_from_its_world)
{
    party_run("aaaa", body_set, 0);
    party_run("aabb", body_set, 0);
}

/* --- doze and nudge --- */

static const uint64_t LONG_NS = 40 * NS_PER_S, SOON_NS = 20 * NS_PER_S;

static uint64_t doze_time(struct backend *b, uint64_t ns)
{
    uint64_t t = clock_now_ns();
    backend_cpu.doze(b, ns);
    return clock_now_ns() - t;
}

static void wait_until_dozing(struct cpu *c, uint64_t deadline_ns)
{
    while (atomic_load(&c->agree.line->awaits) == 0 && clock_now_ns() < deadline_ns)
        sched_yield();
}

struct nudger {
    struct cpu *c;
    uint64_t deadline_ns;
    bool aborts;
    atomic_bool is_over; /* the doze was too short to be observed */
};

static void *nudge_one_doze(void *arg)
{
    struct nudger *n = arg;
    while (atomic_load(&n->c->agree.line->awaits) == 0 && !atomic_load(&n->is_over)
           && clock_now_ns() < n->deadline_ns)
        sched_yield();
    if (n->aborts)
        backend_cpu.abort(&n->c->b);
    else
        backend_cpu.nudge(&n->c->b);
    return NULL;
}

/* The duration of a doze that another thread ends. */
static uint64_t
doze_until_nudged(struct backend *b, struct party *p, uint64_t ns, bool aborts)
{
    struct nudger n = {(struct cpu *)b, p->deadline_ns, aborts, false};
    pthread_t t;
    if (pthread_create(&t, NULL, nudge_one_doze, &n) != 0)
        return UINT64_MAX;
    uint64_t took = doze_time(b, ns);
    atomic_store(&n.is_over, true);
    pthread_join(t, NULL);
    return took;
}

static int body_nudge(struct backend *b, uint32_t me, struct party *p, char *said)
{
    struct err err = ERR_INIT;
    (void)me;
    backend_cpu.nudge(b);
    backend_cpu.nudge(b);
    if (doze_time(b, LONG_NS) > SOON_NS)
        return party_fails(b, said, "nudged before the doze", 0, &err);
    if (doze_until_nudged(b, p, LONG_NS, false) > SOON_NS)
        return party_fails(b, said, "nudged in the doze", 0, &err);
    if (doze_time(b, 3 * NS_PER_MS) < 3 * NS_PER_MS)
        return party_fails(b, said, "a nudge ended two dozes", 0, &err);
    return 0;
}

UNIT_TEST(nudge_ends_one_doze)
{
    party_run("a", body_nudge, 0);
    party_run("aa", body_nudge, 0);
    party_run("ab", body_nudge, 0);
}

static int body_nudge_late(struct backend *b, uint32_t me, struct party *p, char *said)
{
    const uint64_t word = 3;
    uint64_t got;
    struct err err = ERR_INIT;
    bool is_done;
    p->cpu[me]->w.slice_ns = LONG_NS;
    if (me == 0) {
        if (backend_cpu.agree_begin(b, &word, 1, &err) < 0
            || backend_cpu.agree_poll(b, &got, &is_done, &err) < 0 || is_done)
            return party_fails(b, said, "begin", 0, &err);
        for (uint32_t i = 0; i < 50; i++)
            if (doze_until_nudged(b, p, LONG_NS, false) > SOON_NS)
                return party_fails(b, said, "no nudge ended the doze", i, &err);
        atomic_fetch_add(&p->n_at, 1);
    } else {
        wait_for(&p->n_at, p->size + 1, p->deadline_ns);
        if (backend_cpu.agree_begin(b, &word, 1, &err) < 0)
            return party_fails(b, said, "begin", 0, &err);
    }
    if (agree_until_done(b, &got, 0, p->deadline_ns, &err) < 0 || got != word)
        return party_fails(b, said, "poll", 0, &err);
    return 0;
}

UNIT_TEST(nudge_ends_a_doze_inside_an_agreement)
{
    party_run("aa", body_nudge_late, 0);
    party_run("ab", body_nudge_late, 0);
}

/* The last member starts while the other members sleep: it wakes them. */
static int body_wake(struct backend *b, uint32_t me, struct party *p, char *said)
{
    const uint64_t word = 7;
    uint64_t got;
    struct err err = ERR_INIT;
    bool is_done;
    p->cpu[me]->w.slice_ns = LONG_NS;
    for (uint32_t k = 0; k < 50; k++) {
        uint32_t late = p->size - 1;
        if (me == late) /* all of this round have polled and found us missing */
            wait_for(&p->n_at, p->size + (k + 1) * late, p->deadline_ns);
        for (uint32_t j = 0; me == late && j < late; j++)
            wait_until_dozing(p->cpu[j], p->deadline_ns);
        if (backend_cpu.agree_begin(b, &word, 1, &err) < 0)
            return party_fails(b, said, "begin", k, &err);
        if (me != late) {
            if (backend_cpu.agree_poll(b, &got, &is_done, &err) < 0 || is_done)
                return party_fails(b, said, "done too early", k, &err);
            atomic_fetch_add(&p->n_at, 1);
            if (doze_time(b, LONG_NS) > SOON_NS)
                return party_fails(b, said, "the last one wakes nobody", k, &err);
        }
        if (agree_until_done(b, &got, me == late ? 0 : NS_PER_S, p->deadline_ns, &err)
            < 0)
            return party_fails(b, said, "poll", k, &err);
    }
    return 0;
}

UNIT_TEST(last_member_wakes_sleeping_members)
{
    party_run("aaa", body_wake, 0);
    party_run("ab", body_wake, 0);
    party_run("aab", body_wake, 0);
}

static int body_abort(struct backend *b, uint32_t me, struct party *p, char *said)
{
    const uint64_t word = 1;
    uint64_t got;
    bool is_done = false;
    struct err err = ERR_INIT;
    if (me != 0)
        return 0; /* never begins */
    if (doze_until_nudged(b, p, LONG_NS, true) > SOON_NS)
        return party_fails(b, said, "abort did not end the doze", 0, &err);
    if (backend_cpu.agree_begin(b, &word, 1, &err) < 0)
        return party_fails(b, said, "begin", 0, &err);
    if (backend_cpu.agree_poll(b, &got, &is_done, &err) != -ECANCELED
        || strcmp(err.text, "aborted") != 0)
        return party_fails(b, said, "aborted poll", 0, &err);
    if (backend_cpu.agree_poll(b, &got, &is_done, &err) != -EPIPE
        || strcmp(err.text, "aborted") != 0
        || backend_cpu.agree_begin(b, &word, 1, &err) != -EPIPE)
        return party_fails(b, said, "broken for good", 0, &err);
    return 0;
}

UNIT_TEST(abort_ends_doze_and_agreement)
{
    party_run("aa", body_abort, 0);
    party_run("ab", body_abort, 0);
}

/* --- wrong use --- */

static int body_misuse(struct backend *b, uint32_t me, struct party *p, char *said)
{
    uint64_t w[AGREE_MAX_WORDS] = {1}, ticket;
    struct err err = ERR_INIT;
    struct batch batch = {.coll = COLL_BARRIER};
    bool is_done;
    (void)me;
    if (backend_cpu.agree_begin(b, w, 0, &err) != -EINVAL
        || strcmp(err.text, "agreement of 0 words, 1 to 64 are allowed") != 0)
        return party_fails(b, said, "no words", 0, &err);
    if (backend_cpu.agree_begin(b, w, AGREE_MAX_WORDS + 1, &err) != -EINVAL)
        return party_fails(b, said, "too many words", 0, &err);
    if (backend_cpu.agree_poll(b, w, &is_done, &err) != -EINVAL)
        return party_fails(b, said, "poll of nothing", 0, &err);
    if (backend_cpu.agree_begin(b, w, 1, &err) != 0
        || backend_cpu.agree_begin(b, w, 1, &err) != -EBUSY)
        return party_fails(b, said, "begin twice", 0, &err);
    if (backend_cpu.post(b, &batch, &ticket, &err) != -EBUSY)
        return party_fails(b, said, "post inside", 0, &err);
    if (agree_until_done(b, w, 0, p->deadline_ns, &err) < 0 || w[0] != 1)
        return party_fails(b, said, "still whole", 0, &err);
    return 0;
}

UNIT_TEST(wrong_calls_are_refused_and_break_nothing)
{
    party_run("aa", body_misuse, 0);
}

static int body_unequal(struct backend *b, uint32_t me, struct party *p, char *said)
{
    uint64_t w[2] = {1, 1};
    char want[80];
    struct err err = ERR_INIT;
    snprintf(want, sizeof(want),
             "rank %u is in agreement 1 of %u words, rank %u in 1 of %u", 1 - me,
             2 - me, me, me + 1);
    if (backend_cpu.agree_begin(b, w, me + 1, &err) < 0)
        return party_fails(b, said, "begin", 0, &err);
    int rc = agree_until_done(b, w, 0, p->deadline_ns, &err);
    if (rc != -EPROTO || strcmp(err.text, want) != 0)
        return party_fails(b, said, want, 0, &err);
    return 0;
}

UNIT_TEST(unequal_lengths_are_an_error)
{
    party_run("aa", body_unequal, 0);
}

/* --- death --- */

static int body_last_dies(struct rank *r)
{
    const uint64_t word = 1;
    uint64_t got;
    struct err err = ERR_INIT;
    for (int k = 0; k < 3; k++)
        if (backend_cpu.agree_begin(r->b, &word, 1, &err) < 0
            || agree_until_done(r->b, &got, NS_PER_MS, r->env.deadline_ns, &err) < 0)
            return SAY(r, "%s", err.text);
    if (r->rank == r->size - 1) {
        atomic_store(&r->m->when[r->rank], clock_now_ns());
        if (!r->arg)
            raise(SIGKILL);
        return 0; /* leaves */
    }
    int rc = backend_cpu.agree_begin(r->b, &word, 1, &err);
    if (rc == 0)
        rc = agree_until_done(r->b, &got, NS_PER_S, r->env.deadline_ns, &err);
    atomic_store(&r->m->when[r->rank], clock_now_ns());
    (void)SAY(r, "%s", err.text);
    world_meet(r, r->size - 1); /* else the first to leave is taken for a lost rank */
    return rc < 0 ? 0 : 1;
}

UNIT_TEST(lost_member_is_named_within_a_second)
{
    static const struct {
        uint32_t size;
        bool tcp;
        const char *hosts, *leaves, *says;
    } t[] = {
        {4, false, NULL, NULL, "lost rank 3 (host h): connection closed"},
        {2, true, NULL, NULL, "lost rank 1 (host h): "},
        {4, false, "aaab", NULL, "lost rank 3 (host b): "},
        {3, false, NULL, "leaves", "lost rank 2 (host h): "},
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct world w = {.size = t[i].size,
                          .tcp = t[i].tcp,
                          .hosts = t[i].hosts,
                          .arg = t[i].leaves,
                          .body = body_last_dies,
                          .timeout_s = 20};
        ASSERT_IN_TIME(world_names_last(&w, t[i].says));
    }
}

UNIT_MAIN(NULL, NULL)
