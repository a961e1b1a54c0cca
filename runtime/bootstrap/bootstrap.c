/* SPDX-License-Identifier: Apache-2.0 */
/* One exchange of cards (contract/card.h) over a launcher's channel:
 *
 *   open -> put own card -> fence -> get rank 0's card, and all cards where the
 *                                    environment does not give the whole place
 *
 * It runs in its own thread, because libpmix has no deadlines: the caller waits until
 * the deadline and then returns an error that names the stage. The thread stays behind
 * with the memory that it uses (its struct is reference-counted). If it ever completes,
 * it reports a normal exit to the launcher. While the caller waits, it logs which rank
 * is missing (contract/waiting.h).
 *
 * A rank that can reach rank 0 by loopback (same boot id, same network namespace) does
 * so; the other ranks receive the list of its addresses. Environment read here:
 * HVD_HOST_ID. */
#include "runtime/bootstrap/bootstrap.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"
#include "runtime/base/thread.h"
#include "runtime/bootstrap/carrier.h"
#include "runtime/contract/card.h"
#include "runtime/contract/waiting.h"

#define GRACE_MS 100u  /* for a channel that keeps deadlines to return by itself */
#define PROBE_MS 1000u /* to find the missing rank */

enum stage { STAGE_OPENING, STAGE_PUBLISHING, STAGE_WAITING, STAGE_QUERYING };

struct bootstrap {
    struct carrier *ch;
    pid_t pid; /* a forked child is not this rank */
};

struct attempt {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    unsigned n_refs; /* lock: caller and thread */
    bool is_done;    /* lock; the fields below belong to the thread until then */
    struct contract c;
    uint16_t port;
    char addrs[HOST_NAME_MAX_BYTES];
    uint64_t deadline_ns;
    struct token token;
    struct bootstrap *b;
    struct err err;
    int rc;
    /* For the caller's error message. Stored with release after ch is set: a reader
     * that sees a later stage than OPENING sees ch. */
    _Atomic enum stage stage;
    struct carrier *ch;
    /* of a probe: the number of consecutive ranks that have put; relaxed */
    _Atomic uint32_t n_here;
    bool has_probe; /* the caller's */
};

static void attempt_unref(struct attempt *a)
{
    (void)pthread_mutex_lock(&a->lock);
    bool is_last = --a->n_refs == 0;
    (void)pthread_mutex_unlock(&a->lock);
    if (!is_last)
        return;
    bootstrap_finish(a->b); /* the caller has given up */
    token_wipe(&a->token);
    (void)pthread_cond_destroy(&a->cond);
    (void)pthread_mutex_destroy(&a->lock);
    mem_free(a);
}

/* --- cards --- */

static void digest_add_text(struct sha256 *s, const char *text)
{
    sha256_add(s, text, strlen(text) + 1);
}

static void key_of(struct sha256 *s, char ret[CARD_KEY_BYTES])
{
    uint8_t h[SHA256_BYTES];

    sha256_end(s, h);
    hex_encode(h, 8, ret);
}

/* A host is a name on a machine: two containers of one machine are two hosts, as their
 * launcher sees it, and so are two machines that are both called "localhost". */
static void describe_host(struct card *card)
{
    AUTOFREE char *boot = NULL;
    const char *id = getenv("HVD_HOST_ID");
    char name[256] = "";
    struct sha256 s;
    struct stat st;
    size_t n;

    if (fd_read_file("/proc/sys/kernel/random/boot_id", 256, &boot, &n, NULL) != 0)
        boot = NULL;                           /* then the host name alone decides */
    (void)gethostname(name, sizeof(name) - 1); /* "" is valid */
    sha256_init(&s);
    digest_add_text(&s, name);
    digest_add_text(&s, boot ? boot : "");
    digest_add_text(&s, id ? id : "");
    key_of(&s, card->host);
    if (!boot || stat("/proc/self/ns/net", &st) != 0)
        return; /* "": no other rank uses loopback */
    sha256_init(&s);
    digest_add_text(&s, boot);
    sha256_add(&s, &st.st_ino, sizeof(st.st_ino));
    key_of(&s, card->net);
}

static int my_card(struct attempt *a, const char *job, struct card *ret)
{
    const struct contract *c = &a->c;
    struct card card = {.local_rank = CARD_NO_LOCAL};

    describe_host(&card);
    if (c->known == KNOWN_LOCAL)
        card.local_rank = c->place.local_rank;
    if (c->place.rank == 0) {
        int rc = token_random(&a->token, &a->err);
        if (rc)
            return rc;
        hex_encode(a->token.key, sizeof(a->token.key), card.token);
        card.port = a->port;
        (void)snprintf(card.addrs, sizeof(card.addrs), "%s", a->addrs); /* same size */
        if (c->job_id[0])
            (void)snprintf(card.job, sizeof(card.job), "%s", c->job_id);
        else
            (void)snprintf(card.job, sizeof(card.job), "%s/%.150s",
                           launcher_name(c->launcher), job); /* fits */
    }
    *ret = card;
    return 0;
}

/* The address at which this rank meets rank 0, whose card this is. */
static int take_offer(struct attempt *a, const struct card *mine, const struct card *o)
{
    struct contract *c = &a->c;
    bool is_near = o->net[0] && strcmp(o->net, mine->net) == 0;

    if (o->port == 0 || hex_decode(o->token, a->token.key, sizeof(a->token.key)) != 0)
        return err_set(&a->err, -EPROTO,
                       "the card of rank 0 has no rendezvous address");
    if (!is_near && !o->addrs[0])
        return err_set(&a->err, -EHOSTUNREACH,
                       "rank 0 is on another host and has no address but loopback");
    (void)snprintf(c->rdv_host, sizeof(c->rdv_host), "%s",
                   is_near ? "127.0.0.1" : o->addrs); /* same size */
    (void)snprintf(c->job_id, sizeof(c->job_id), "%s", o->job);
    c->rdv_port = o->port;
    c->rank0_serves = true;
    c->token_source = TOKEN_CHANNEL;
    return 0;
}

static int
get_card(struct attempt *a, struct carrier *ch, uint32_t rank, struct card *ret)
{
    char text[CARD_MAX_BYTES + 1];
    int rc = ch->ops->get(ch, rank, text, sizeof(text), a->deadline_ns, &a->err);

    return rc ? rc : card_parse(text, rank, ret, &a->err);
}

static int attempt_find_place(struct attempt *a, struct carrier *ch)
{
    struct place *p = &a->c.place;
    AUTOFREE struct card_place *v = mem_calloc(p->size, sizeof(*v));

    if (!v)
        return err_set(&a->err, -ENOMEM, "out of memory for %u ranks", p->size);
    for (uint32_t i = 0; i < p->size; i++) {
        struct card card;
        int rc = get_card(a, ch, i, &card);

        if (rc)
            return rc;
        memcpy(v[i].host, card.host, sizeof(v[i].host));
        v[i].local_rank = card.local_rank;
    }
    return card_find_place(v, p, &a->err);
}

/* --- the exchange --- */

static void attempt_enter_stage(struct attempt *a, enum stage stage)
{
    atomic_store_explicit(&a->stage, stage, memory_order_release);
}

static int attempt_exchange(struct attempt *a, struct carrier *ch)
{
    char text[CARD_MAX_BYTES + 1];
    struct card mine, first;
    int rc = my_card(a, ch->job, &mine);

    rc = rc ? rc : card_format(&mine, text, sizeof(text), &a->err);
    if (rc)
        return rc;
    attempt_enter_stage(a, STAGE_PUBLISHING);
    rc = ch->ops->put(ch, text, a->deadline_ns, &a->err);
    mem_wipe(text, sizeof(text)); /* has the token */
    if (rc)
        return rc;
    attempt_enter_stage(a, STAGE_WAITING);
    rc = ch->ops->fence(ch, a->deadline_ns, &a->err);
    if (rc)
        return rc;
    attempt_enter_stage(a, STAGE_QUERYING);
    rc = get_card(a, ch, 0, &first);
    rc = rc ? rc : take_offer(a, &mine, &first);
    if (rc == 0 && a->c.known != KNOWN_ALL)
        rc = attempt_find_place(a, ch);
    return rc;
}

/* The channel's own report of our rank and size. */
static int check_rank(struct attempt *a, const struct carrier *ch)
{
    struct place *p = &a->c.place;

    if (a->c.known == KNOWN_NOTHING) {
        p->rank = ch->rank;
        p->size = ch->size;
        if (p->size == 1)
            a->c.known = KNOWN_ALL;
        return 0;
    }
    if (p->rank == ch->rank && p->size == ch->size)
        return 0;
    return err_set(&a->err, -EINVAL,
                   "%s: the environment says rank %u of %u, but %s says rank %u of %u",
                   launcher_name(a->c.launcher), p->rank, p->size,
                   launcher_channel_name(a->c.channel), ch->rank, ch->size);
}

static int attempt_run(struct attempt *a)
{
    const struct carrier_ops *ops =
        a->c.channel == CHANNEL_PMIX ? &carrier_pmix : &carrier_pmi;
    struct carrier *ch = NULL;
    AUTOFREE struct bootstrap *b = mem_zalloc(sizeof(*b));

    if (!b)
        return err_set(&a->err, -ENOMEM, "out of memory");
    int rc = ops->open(&a->c, a->deadline_ns, &ch, &a->err);
    if (rc)
        return rc;
    b->ch = a->ch = ch;
    b->pid = getpid();
    rc = check_rank(a, ch);
    if (rc == 0 && a->c.place.size > 1)
        rc = attempt_exchange(a, ch);
    a->c.known = rc ? a->c.known : KNOWN_ALL;
    a->b = TAKE(b); /* also after a failure: the launcher must see a normal exit */
    return rc;
}

static void *bootstrap_thread_main(void *arg)
{
    struct attempt *a = arg;
    int rc = attempt_run(a);

    if (rc == -ENOENT && atomic_load(&a->stage) != STAGE_OPENING)
        rc = err_recode(&a->err, -EPROTO);
    (void)pthread_mutex_lock(&a->lock);
    a->rc = rc;
    a->is_done = true;
    (void)pthread_cond_signal(&a->cond);
    (void)pthread_mutex_unlock(&a->lock);
    attempt_unref(a);
    return NULL;
}

/* Gets the value of each rank; blocks at the first that has not put. */
static void *probe_main(void *arg)
{
    struct attempt *a = arg;
    char text[CARD_MAX_BYTES + 1];
    uint32_t i = 0;

    while (i < a->c.place.size
           && a->ch->ops->get(a->ch, i, text, sizeof(text), 0, NULL) == 0)
        atomic_store_explicit(&a->n_here, ++i, memory_order_relaxed);
    mem_wipe(text, sizeof(text)); /* has the token */
    attempt_unref(a);
    return NULL;
}

static int attempt_start_thread(struct attempt *a, void *(*thread_fn)(void *))
{
    pthread_t thread;
    int rc = thread_start(&thread, thread_fn, a);

    if (rc == 0)
        (void)pthread_detach(thread); /* frees itself */
    return -rc;
}

static struct attempt *attempt_new(const struct contract *c,
                                   uint16_t port,
                                   const char *addrs,
                                   uint64_t deadline_ns)
{
    struct attempt *a = mem_zalloc(sizeof(*a));
    pthread_condattr_t attr;

    if (!a)
        return NULL;
    (void)pthread_mutex_init(&a->lock,
                             NULL); /* cannot fail on Linux, nor can what follows */
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&a->cond, &attr);
    (void)pthread_condattr_destroy(&attr);
    a->n_refs = 1;
    a->c = *c;
    a->port = port;
    a->deadline_ns = deadline_ns;
    (void)snprintf(a->addrs, sizeof(a->addrs), "%s", addrs);
    return a;
}

static bool attempt_is_done(struct attempt *a)
{
    (void)pthread_mutex_lock(&a->lock);
    bool is_done = a->is_done;
    (void)pthread_mutex_unlock(&a->lock);
    return is_done;
}

/* true: done; false: the time has come. */
static bool wait_until(struct attempt *a, uint64_t end_ns)
{
    const struct timespec until = clock_timespec(end_ns);
    bool is_done;
    int rc = 0;

    (void)pthread_mutex_lock(&a->lock);
    while (!a->is_done && rc == 0)
        rc = pthread_cond_timedwait(&a->cond, &a->lock, &until);
    is_done = a->is_done;
    (void)pthread_mutex_unlock(&a->lock);
    return is_done;
}

/* The first rank that has not put, or the size where that is unknown: of more than two
 * ranks only PMIx reports them before the fence is complete. The probe has PROBE_MS for
 * that; its thread remains in the channel, at the first missing rank, and ends when all
 * ranks have put. */
static uint32_t first_missing(struct attempt *a)
{
    const uint64_t end_ns = clock_now_ns() + PROBE_MS * NS_PER_MS;
    const uint32_t size = a->c.place.size;

    if (size == 2)
        return 1 - a->c.place.rank;
    if (a->c.channel != CHANNEL_PMIX)
        return size;
    if (!a->has_probe) {
        (void)pthread_mutex_lock(&a->lock);
        a->n_refs++;
        (void)pthread_mutex_unlock(&a->lock);
        a->has_probe = attempt_start_thread(a, probe_main) == 0;
        if (!a->has_probe) {
            attempt_unref(a);
            return size;
        }
    }
    while (clock_now_ns() < end_ns && !attempt_is_done(a)
           && atomic_load_explicit(&a->n_here, memory_order_relaxed) < size)
        (void)poll(NULL, 0, 10); /* a signal: check earlier */
    return atomic_load_explicit(&a->n_here, memory_order_relaxed);
}

static void log_waiting(struct attempt *a, uint64_t waited_ns)
{
    const struct place *p = &a->c.place;
    uint32_t missing;
    char text[80];

    /* acquire: the channel's rank and size are set then, as is ch */
    if (atomic_load_explicit(&a->stage, memory_order_acquire) != STAGE_WAITING
        || !waiting_is_writer(p->rank, p->size, p->size))
        return;
    missing = first_missing(a);
    if (missing == p->size && a->has_probe) /* all have put, the fence ends soon */
        return;
    if (attempt_is_done(a) || !waiting_is_writer(p->rank, p->size, missing))
        return;
    waiting_text(p->size, missing, text, sizeof(text));
    log_event(LOG_WARN, text, WAITING_DETAILS,
              (unsigned long long)(waited_ns / NS_PER_S));
}

/* true: done; false: the deadline has passed. */
static bool wait_for(struct attempt *a, uint64_t since_ns)
{
    const uint64_t end_ns = a->deadline_ns + GRACE_MS * NS_PER_MS;

    for (;;) {
        uint64_t line_ns = waiting_next_ns(since_ns, clock_now_ns());

        if (wait_until(a, earlier_ns(end_ns, line_ns)))
            return true;
        if (end_ns <= line_ns)
            return false;
        log_waiting(a, clock_now_ns() - since_ns);
    }
}

static int too_late(struct attempt *a, uint64_t start_ns, struct err *err)
{
    char missing[32] = "some rank";
    uint32_t rank;

    const unsigned s =
        (unsigned)((a->deadline_ns - start_ns + NS_PER_S / 2) / NS_PER_S);
    const char *by = launcher_channel_name(a->c.channel),
               *who = launcher_name(a->c.launcher);

    switch (atomic_load_explicit(&a->stage, memory_order_acquire)) {
    case STAGE_WAITING:
        rank = first_missing(a);
        if (rank < a->c.place.size)
            (void)snprintf(missing, sizeof(missing), "rank %u", rank); /* fits */
        return err_set(
            err, -ETIMEDOUT,
            "waited %u s for all %u ranks of %s to meet by its %s: %s has not "
            "called hvd.init() or has failed",
            s, a->c.place.size, who, by, missing);
    case STAGE_OPENING:
    case STAGE_PUBLISHING:
    case STAGE_QUERYING:
        break;
    }
    return err_set(err, -ETIMEDOUT, "the %s of %s has not answered within %u s", by,
                   who, s);
}

int bootstrap_meet(struct contract *c,
                   uint16_t port,
                   const char *addrs,
                   uint64_t deadline_ns,
                   struct bootstrap **ret,
                   struct token *ret_token,
                   struct err *err)
{
    struct attempt *a = attempt_new(c, port, addrs, deadline_ns);
    const uint64_t start_ns = clock_now_ns();

    if (!a)
        return err_set(err, -ENOMEM, "out of memory");
    a->n_refs = 2;
    int rc = attempt_start_thread(a, bootstrap_thread_main);
    if (rc) {
        a->n_refs = 1;
        attempt_unref(a);
        return err_errno(err, -rc, "cannot start a thread");
    }
    bool is_done = wait_for(a, start_ns);
    rc = is_done ? a->rc : -ETIMEDOUT;
    if (rc == 0) {
        *c = a->c;
        *ret_token = a->token;
    } else if (rc == -ETIMEDOUT) {
        (void)too_late(a, start_ns, err); /* rc is returned */
    } else {
        (void)err_set(err, rc, "%s", a->err.text);
    }
    if (is_done && a->b) /* after a failure too */
        *ret = TAKE(a->b);
    attempt_unref(a);
    return rc;
}

void bootstrap_finish(struct bootstrap *b)
{
    if (!b)
        return;
    if (b->pid == getpid())
        b->ch->ops->finish(b->ch);
    mem_free(b);
}
