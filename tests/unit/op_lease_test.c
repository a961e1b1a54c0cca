/* SPDX-License-Identifier: Apache-2.0 */
/* Leader election: the machine edge by edge, and three of them against one server in
 * simulated time, with requests and answers that are late or lost, clocks that run at
 * different rates, processes that are stopped, killed, or told to end. */
#include "tests/unit/unit.h"

#include "operator/core/lease.h"
#include "operator/doc/json.h"
#include "runtime/base/mem.h"
#include "tests/unit/seeded.h"

#define MS    1000000ull
#define S     (1000 * MS)
#define START (1000 * S)

static const struct lease_config config = {
    .identity = "me", .duration_ns = 15 * S, .renew_ns = 10 * S, .retry_ns = 2 * S};

/* --- edge by edge ---------------------------------------------------------------- */

static struct lease_record lease_make_record(const char *holder, const char *version)
{
    struct lease_record r = {.duration_ns = 15 * S};

    (void)snprintf(r.holder, sizeof(r.holder), "%s", holder);
    (void)snprintf(r.version, sizeof(r.version), "%s", version);
    return r;
}

static int lease_find_word(const char *const *words, int n, const char *text)
{
    size_t length = strcspn(text, "; ");

    for (int i = 0; i < n; i++) {
        if (strlen(words[i]) == length && strncmp(text, words[i], length) == 0)
            return i;
    }
    fail_msg("no such word: %s", text);
    return 0;
}

static void lease_must_send(const struct lease *l, const char *verb, uint64_t now)
{
    static const char *const verbs[] = {"wait", "get", "create", "update"};

    if (lease_next(l, now) != (enum lease_verb)lease_find_word(verbs, 4, verb))
        fail_msg("not due: %s", verb);
}

/* The answer arrives: ok HOLDER[/SECONDS] VERSION | absent | conflict | failed. The holder
 * "-" is nobody. */
static void lease_play_answer(struct lease *l, const char *text, uint64_t now)
{
    static const char *const answers[] = {"ok", "absent", "conflict", "failed"};
    char holder[16] = "-", version[16] = "";
    struct lease_record r;
    char *seconds;

    (void)sscanf(text, "ok %15[^; ] %15[^; ]", holder, version);
    seconds = strchr(holder, '/');
    if (seconds)
        *seconds++ = '\0';
    r = lease_make_record(strcmp(holder, "-") == 0 ? "" : holder, version);
    if (seconds)
        r.duration_ns = strtoull(seconds, NULL, 10) * S;
    lease_answered(l, (enum lease_answer)lease_find_word(answers, 4, text), &r, now, 0);
}

/* A step is "MS WORD [MORE]":
 *   get, create, update ANSWER   that request is due, is sent and answered
 *   polls N/MS ANSWER            N requests get, so far apart
 *   sent; answered ANSWER        the two halves of a request
 *   gives-up                     the process is asked to exit
 *   leads, follows, done, busy, due, next VERB     what is the case */
static void lease_play_step(struct lease *l, const char *step)
{
    unsigned long long ms;
    unsigned n = 1, pause_ms = 0;
    char word[16];
    int end = 0;
    bool is_so = true;

    assert_int_equal(sscanf(step, "%llu %15[^; ] %n", &ms, word, &end), 2);
    uint64_t now = START + ms * MS;
    const char *more = step + end;

    if (strcmp(word, "leads") == 0 || strcmp(word, "follows") == 0)
        is_so = lease_leads(l, now) == (*word == 'l');
    else if (strcmp(word, "done") == 0 || strcmp(word, "busy") == 0)
        is_so = l->is_done == (*word == 'd');
    else if (strcmp(word, "due") == 0)
        is_so = lease_next_ns(l) == now;
    else if (strcmp(word, "next") == 0)
        lease_must_send(l, more, now);
    else if (strcmp(word, "gives-up") == 0)
        lease_give_up(l, now);
    else if (strcmp(word, "sent") == 0)
        lease_sent(l, now);
    else if (strcmp(word, "answered") == 0)
        lease_play_answer(l, more, now);
    else {
        if (sscanf(step, "%*u polls %u/%u %n", &n, &pause_ms, &end) == 2)
            (void)snprintf(word, sizeof(word), "get");
        for (more = step + end; n > 0; n--, now += pause_ms * MS) {
            lease_must_send(l, word, now);
            lease_sent(l, now);
            lease_must_send(l, "wait", now);
            lease_play_answer(l, more, now);
        }
    }
    if (!is_so)
        fail_msg("not so: %s", step);
}

#define LEADER "0 get absent; 0 create ok me 1; 0 leads; "

UNIT_TEST(each_edge_is_taken)
{
    static const char *const cases[] = {
        /* the first one leads and renews */
        LEADER
        "2000 due; 1999 next wait; 2000 update ok me 2; 11999 leads; 12000 follows",
        /* a renewal counts from when it was sent */
        LEADER
        "2000 sent; 11000 answered ok me 2; 11000 leads; 11000 next update; 12000 "
        "follows",
        /* a foreign lease is taken only when it did not change; version 8 shows that its
         * holder is alive */
        "0 polls 30/500 ok other 7; 15000 get ok other 7; 15000 update conflict; 15000 "
        "get ok other 8; 15000 next wait; 30000 get ok other 8; 30000 update ok me 9; "
        "30000 leads",
        /* a longer duration in the record counts */
        "0 polls 3/25000 ok other/60 7; 50000 next wait; 60000 get ok other/60 7; "
        "60000 next update",
        /* a released lease is taken at once */
        "0 get ok other 7; 1000 get ok - 8; 1000 update ok me 9; 1000 leads",
        /* a deleted one not before its time */
        "0 get ok other 7; 1000 get absent; 14000 get absent; 15000 get absent; 15000 "
        "next create",
        /* the holder recreates a deleted lease, and does not lead meanwhile */
        LEADER "2000 update absent; 2000 leads; 2000 get absent; 2000 follows; 2000 "
               "create ok me 9; 2000 leads",
        /* a missing namespace is retried slowly */
        "0 get absent; 0 create absent; 1999 next wait; 2000 next get",
        /* a lost answer is checked */
        "0 get absent; 0 create failed; 0 follows; 2000 get ok me 1; 2000 follows; "
        "2000 update ok me 2; 2000 leads",
        /* a leader that cannot renew stops and recovers */
        LEADER
        "2000 update failed; 2000 leads; 4000 polls 13/2000 failed; 30000 follows; "
        "30000 get ok me 1; 30000 update ok me 2; 30000 leads; 32000 update "
        "conflict; 32000 get ok other 5; 32000 follows",
        /* a process that gives up does not lead and releases: during a renewal, after
         * another has taken the lease, and with nothing of its own to release */
        LEADER "2000 sent; 2000 gives-up; 2000 follows; 2000 busy; 2000 answered ok me "
               "2; 2000 follows; 2000 update ok - 3; 2000 done",
        LEADER "1 gives-up; 1 update conflict; 1 get ok other 9; 1 done",
        "0 get ok other 1; 0 gives-up; 0 done",
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct lease l;

        lease_init(&l, &config);
        for (const char *s = cases[i]; s; s = strchr(s, ';')) {
            s += *s == ';';
            lease_play_step(&l, s);
        }
        if (l.is_done)
            assert_int_equal(lease_next_ns(&l), UINT64_MAX);
    }
}

UNIT_TEST(fields_of_others_in_the_lease_are_kept)
{
    static const char text[] =
        "{\"metadata\":{\"name\":\"x\",\"resourceVersion\":\"7\",\"labels\":{\"a\":"
        "\"b\"}},\"spec\":{\"holderIdentity\":\"other\",\"leaseDurationSeconds\":99,"
        "\"leaseTransitions\":4,\"acquireTime\":\"2026-01-01T00:00:00.000000Z\","
        "\"strategy\":\"OldestEmulationVersion\"}}";
    struct lease l;
    struct lease_record r;
    CLEANUP(arena_release) struct arena a;
    struct node *o;
    struct build b = {.arena = &a};

    arena_init(&a, 1u << 20);
    assert_int_equal(json_read(&a, text, sizeof(text) - 1, &o, NULL), 0);
    lease_read(o, &r);
    assert_string_equal(r.holder, "other");
    assert_int_equal(r.duration_ns, 99 * S);
    lease_init(&l, &config);
    lease_sent(&l, START);
    lease_answered(&l, LEASE_OK, &r, START, 0);
    l.next = LEASE_UPDATE;
    lease_write(&l, 1000000, &b, o);
    assert_string_equal(node_str(o, "metadata.labels.a"), "b");
    assert_string_equal(node_str(o, "metadata.resourceVersion"), "7");
    assert_string_equal(node_str(o, "spec.strategy"), "OldestEmulationVersion");
    assert_string_equal(node_str(o, "spec.holderIdentity"), "me");
    assert_string_equal(node_str(o, "spec.renewTime"), "1970-01-01T00:00:01.000000Z");
    assert_string_equal(node_str(o, "spec.acquireTime"), "1970-01-01T00:00:01.000000Z");
    assert_int_equal(node_int(o, "spec.leaseTransitions", 0), 5);
    assert_int_equal(node_int(o, "spec.leaseDurationSeconds", 0), 15);
    lease_read(o, &l.seen); /* ours now */
    lease_write(&l, 2000000, &b, o);
    assert_string_equal(node_str(o, "spec.acquireTime"), "1970-01-01T00:00:01.000000Z");
    assert_int_equal(node_int(o, "spec.leaseTransitions", 0), 5);
    l.is_giving_up = true;
    lease_write(&l, 3000000, &b, o);
    assert_string_equal(node_str(o, "spec.holderIdentity"), "");
    assert_int_equal(node_int(o, "spec.leaseDurationSeconds", 0), 1);
    assert_int_equal(b.status, 0);
}

/* --- three of them, simulated ---------------------------------------------------- */

#define NODES    3
#define EVENTS   64
#define TROUBLES (180 * S) /* of true time; then all is well for CALM */
#define CALM     (120 * S)
#define TIMEOUT  (5 * S) /* of a request, by the sender's clock */

enum what { TICK, ARRIVE, ANSWER, EXPIRE, STOPPED, CONTINUED, KILLED, ASKED_TO_END };

struct event {
    uint64_t at, number; /* true time */
    enum what what;
    int node;
    uint64_t request; /* which one of the node's */
    enum lease_verb verb;
    enum lease_answer answer;
    struct lease_record record; /* sent, or answered */
};

struct process {
    struct lease lease;
    char identity[16];
    uint64_t offset, rate; /* local clock = offset + true * rate / 1000 */
    uint64_t request, stopped_until;
    unsigned lives;
};

struct sim {
    struct seeded random;
    struct process p[NODES];
    struct event queue[EVENTS];
    size_t n;
    uint64_t now, n_events;
    bool exists;
    struct lease_record object;
    uint64_t version, n_changes_of_leader;
    uint64_t last_led; /* true time at which somebody led */
    unsigned loss;     /* percent */
    uint64_t max_delay;
};

static uint64_t sim_local_ns(const struct sim *s, int i)
{
    return s->p[i].offset + s->now * s->p[i].rate / 1000;
}

static uint64_t true_after(const struct sim *s, int i, uint64_t local_ns)
{
    return s->now + local_ns * 1000 / s->p[i].rate + 1;
}

static void sim_post_event(struct sim *s, struct event e)
{
    assert_true(s->n < EVENTS);
    e.number = ++s->n_events;
    s->queue[s->n++] = e;
}

static struct event sim_take_event(struct sim *s)
{
    size_t first = 0;
    struct event e;

    for (size_t i = 1; i < s->n; i++) {
        if (s->queue[i].at < s->queue[first].at
            || (s->queue[i].at == s->queue[first].at
                && s->queue[i].number < s->queue[first].number))
            first = i;
    }
    e = s->queue[first];
    s->queue[first] = s->queue[--s->n];
    return e;
}

static void only_one_leads(struct sim *s, uint64_t seed)
{
    int leaders = 0;

    for (int i = 0; i < NODES; i++)
        leaders += lease_leads(&s->p[i].lease, sim_local_ns(s, i));
    if (leaders > 1)
        fail_msg("seed %llu: %d lead at %llu ms", (unsigned long long)seed, leaders,
                 (unsigned long long)(s->now / MS));
    if (leaders)
        s->last_led = s->now;
}

static void be_born(struct sim *s, int i)
{
    struct process *p = &s->p[i];
    struct lease_config c = config;

    p->lives++;
    (void)snprintf(p->identity, sizeof(p->identity), "p%d.%u", i, p->lives);
    c.identity = p->identity;
    lease_init(&p->lease, &c);
    p->request++; /* answers to the former life find nobody */
    sim_post_event(s, (struct event){.at = s->now + 1, .what = TICK, .node = i});
}

static uint64_t sim_draw_delay(struct sim *s)
{
    uint64_t most = seeded_below(&s->random, 10) ? 50 * MS : s->max_delay;

    return MS + seeded_next(&s->random) % most;
}

static bool is_lost(struct sim *s)
{
    return s->now < TROUBLES && seeded_below(&s->random, 100) < s->loss;
}

static void sim_tick_process(struct sim *s, int i)
{
    struct process *p = &s->p[i];
    enum lease_verb verb = lease_next(&p->lease, sim_local_ns(s, i));
    struct event e = {.what = ARRIVE, .node = i, .verb = verb};
    uint64_t next;

    if (verb != LEASE_WAIT) {
        lease_sent(&p->lease, sim_local_ns(s, i));
        e.request = ++p->request;
        e.at = s->now + sim_draw_delay(s);
        e.record = p->lease.seen;
        if (p->lease.is_giving_up)
            e.record.holder[0] = '\0';
        else
            memcpy(e.record.holder, p->identity, sizeof(p->identity));
        e.record.duration_ns = 15 * S;
        if (!is_lost(s))
            sim_post_event(s, e);
        e.what = EXPIRE;
        e.at = true_after(s, i, TIMEOUT);
        sim_post_event(s, e);
        return;
    }
    next = lease_next_ns(&p->lease);
    if (next != UINT64_MAX && next > sim_local_ns(s, i))
        sim_post_event(s,
                       (struct event){.at = true_after(s, i, next - sim_local_ns(s, i)),
                                      .what = TICK,
                                      .node = i});
}

/* The API server: one object, a version for each change, preconditions. */
static void sim_serve_request(struct sim *s, struct event e)
{
    e.answer = LEASE_OK;
    if (e.verb != LEASE_CREATE && !s->exists)
        e.answer = LEASE_ABSENT;
    else if (e.verb == LEASE_CREATE && s->exists)
        e.answer = LEASE_CONFLICT;
    else if (e.verb == LEASE_UPDATE && strcmp(e.record.version, s->object.version) != 0)
        e.answer = LEASE_CONFLICT;
    if (e.answer == LEASE_OK && e.verb != LEASE_GET) {
        s->n_changes_of_leader += strcmp(e.record.holder, s->object.holder) != 0;
        s->object = e.record;
        s->exists = true;
        (void)snprintf(s->object.version, sizeof(s->object.version), "%llu",
                       (unsigned long long)++s->version);
    }
    if (e.answer == LEASE_OK)
        e.record = s->object;
    e.what = ANSWER;
    e.at = s->now + sim_draw_delay(s);
    if (!is_lost(s))
        sim_post_event(s, e);
}

/* A request of this life that is still awaited ends. */
static void end_request(struct sim *s, const struct event *e)
{
    struct process *p = &s->p[e->node];

    if (e->request != p->request || !p->lease.is_open)
        return;
    lease_answered(&p->lease, e->what == ANSWER ? e->answer : LEASE_FAILED, &e->record,
                   sim_local_ns(s, e->node), (uint32_t)seeded_next(&s->random));
    sim_tick_process(s, e->node);
}

/* What is wrong with the world: at random moments, to random processes. */
static void sim_disturb(struct sim *s)
{
    uint64_t at = 0;

    while ((at += seeded_next(&s->random) % (25 * S)) < TROUBLES && s->n < EVENTS / 2) {
        static const enum what harm[] = {STOPPED, STOPPED, KILLED, ASKED_TO_END};
        struct event e = {.at = at,
                          .what = harm[seeded_below(&s->random, 4)],
                          .node = (int)seeded_below(&s->random, NODES)};

        sim_post_event(s, e);
    }
}

static void sim_run_event(struct sim *s, struct event *e)
{
    struct process *p = &s->p[e->node];
    bool is_to_process = e->what == TICK || e->what == ANSWER || e->what == EXPIRE;

    if (is_to_process && s->now < p->stopped_until) { /* it waits in the socket */
        e->at = p->stopped_until + e->number % 1000;
        sim_post_event(s, *e);
        return;
    }
    switch (e->what) {
    case TICK:
        sim_tick_process(s, e->node);
        return;
    case ARRIVE:
        sim_serve_request(s, *e);
        return;
    case ANSWER:
    case EXPIRE:
        end_request(s, e);
        return;
    case STOPPED:
        p->stopped_until = s->now + seeded_next(&s->random) % (40 * S);
        return;
    case KILLED:
        p->stopped_until = 0;
        be_born(s, e->node);
        return;
    case ASKED_TO_END:
        lease_give_up(&p->lease, sim_local_ns(s, e->node));
        sim_tick_process(s, e->node);
        sim_post_event(
            s,
            (struct event){.at = s->now + 2 * S, .what = CONTINUED, .node = e->node});
        return;
    case CONTINUED: /* its successor in the Deployment */
        be_born(s, e->node);
        return;
    }
}

static uint64_t sim_run_seed(uint64_t seed)
{
    struct sim s = {.random = {seed}};

    s.loss = seeded_below(&s.random, 40);
    s.max_delay = (1 + seeded_below(&s.random, 30)) * S;
    for (int i = 0; i < NODES; i++) {
        s.p[i].offset = seeded_next(&s.random) % (1000 * S) + S;
        s.p[i].rate = 850 + seeded_below(&s.random, 301);
        be_born(&s, i);
    }
    sim_disturb(&s);
    while (s.n > 0) {
        struct event e = sim_take_event(&s);

        s.now = e.at;
        if (s.now > TROUBLES + CALM)
            break;
        if (s.now > TROUBLES)
            s.max_delay = 50 * MS;
        sim_run_event(&s, &e);
        only_one_leads(&s, seed);
    }
    if (s.last_led + 3 * S < TROUBLES + CALM)
        fail_msg("seed %llu: nobody leads after all is well", (unsigned long long)seed);
    return s.n_changes_of_leader;
}

UNIT_TEST(two_processes_never_lead_at_once_and_one_leads_at_last)
{
    const char *chosen = getenv("HVD_SEED");
    uint64_t n = 4000, changes = 0;

    if (chosen) {
        (void)sim_run_seed(strtoull(chosen, NULL, 10));
        return;
    }
    for (uint64_t seed = 1; seed <= n; seed++)
        changes += sim_run_seed(seed);
    assert_true(changes > 4 * n); /* there was something to see */
}

UNIT_MAIN(NULL, NULL)
