/* SPDX-License-Identifier: Apache-2.0 */
/* The cache: versions, uids, relists, and what is remembered of pods that are gone. */
#include "tests/unit/unit.h"

#include "operator/core/plan.h"
#include "operator/core/store/store.h"
#include "operator/doc/yaml.h"
#include "runtime/base/mem.h"
#include "tests/unit/torture.h"

#define SECOND_NS 1000000000ull

struct world {
    struct store *s;
    struct arena a;
    struct job_meta job;
    const char *job_key;
    char key[STORE_KEY_SIZE];
};

/* The YAML of an object; NULL when memory is out. */
static struct node *world_read(struct world *w, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static struct node *world_read(struct world *w, const char *fmt, ...)
{
    char text[1024];
    struct node *o;
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return yaml_read(&w->a, text, strlen(text), &o, NULL) == 0 ? o : NULL;
}

static struct node *job_object(struct world *w, const char *uid, int version)
{
    return world_read(w,
                      "metadata: {namespace: ns, name: demo, uid: %s, resourceVersion: "
                      "'%d'}\nspec: {}\n",
                      uid, version);
}

static int put_job(struct world *w, const char *uid, int version)
{
    struct node *o = job_object(w, uid, version);

    int rc = o ? store_put_job(w->s, KUBE_JOB, o, w->key, NULL) : -ENOMEM;

    return rc < 0 ? rc : 0;
}

static int take_answer(struct world *w, const char *uid, int version)
{
    struct node *o = job_object(w, uid, version);

    return o ? store_take_answer(w->s, KUBE_JOB, o, w->key, NULL) : -ENOMEM;
}

static int put_pod_object(struct world *w, enum kube_kind kind, const struct node *o)
{
    char conditions[POD_CONDITIONS_SIZE];
    struct pod p;
    int rc = o ? pod_decode(kind, o, conditions, &p, NULL) : -ENOMEM;

    return rc == 0 ? store_put_pod(w->s, &p, w->key) : rc;
}

#define WORKER_META                                                                    \
    "metadata: {namespace: ns, name: demo-worker-%d, uid: p%d, labels: "               \
    "{ringmaster.dev/job-name: demo, ringmaster.dev/job-role: worker}, "               \
    "ownerReferences: [{controller: true, uid: %s}]}\n"

static int put_pod(struct world *w, int index, const char *owner, enum pod_phase phase)
{
    return put_pod_object(w, KUBE_JOB,
                          world_read(w, WORKER_META "status: {phase: %s}\n", index,
                                     index, owner,
                                     phase == POD_RUNNING ? "Running" : "Pending"));
}

static const struct job_shape two = {.n[ROLE_WORKER] = 2};

static struct observed world_observe(struct world *w, uint64_t now_ns)
{
    struct observed seen;

    assert_int_equal(
        store_observe(w->s, w->job_key, &w->job, &two, now_ns, &w->a, &seen), 0);
    return seen;
}

static enum fact_state know_of(struct world *w, enum kube_kind kind)
{
    return world_observe(w, 1).fact[kind].state;
}

static bool is_overdue(struct world *w, uint64_t now_ns, int index)
{
    return world_observe(w, now_ns).crew[ROLE_WORKER].w[index].is_overdue;
}

static void
assert_worker(struct world *w, uint64_t now_ns, int index, enum worker_state state)
{
    assert_int_equal(world_observe(w, now_ns).crew[ROLE_WORKER].w[index].state, state);
}

static struct world *world_open(void)
{
    struct world *w = mem_zalloc(sizeof(*w));

    assert_non_null(w);
    w->s = store_new();
    arena_init(&w->a, 1u << 20);
    w->job =
        (struct job_meta){.kind = KUBE_JOB, .ns = "ns", .name = "demo", .uid = "u1"};
    w->job_key = "ns/demo";
    return w;
}

static void world_close(struct world **w)
{
    store_free((*w)->s);
    arena_release(&(*w)->a);
    mem_free(*w);
}

/* The stored text of a job; "" if there is none. */
static const char *text_of(const struct world *w, const char *key)
{
    struct job_text text;

    return store_job_text(w->s, key, &text) == 0 ? text.p : "";
}

UNIT_TEST(an_older_version_does_not_replace_a_newer)
{
    CLEANUP(world_close) struct world *w = world_open();

    assert_int_equal(put_job(w, "u1", 10), 0);
    assert_string_equal(w->key, "ns/demo");
    assert_int_equal(put_job(w, "u1", 9), 0);
    assert_non_null(strstr(text_of(w, "ns/demo"), "\"resourceVersion\":\"10\""));
    assert_int_equal(put_job(w, "u2", 3), 0); /* another job of that name */
    assert_non_null(strstr(text_of(w, "ns/demo"), "u2"));
}

/* The watch shows each of our status writes, which the store has by then. */
UNIT_TEST(a_job_in_a_version_that_the_store_has_is_not_synced_again)
{
    CLEANUP(world_close) struct world *w = world_open();
    char key[STORE_KEY_SIZE];

#define PUT(uid, version)                                                              \
    store_put_job(w->s, KUBE_JOB, job_object(w, uid, version), key, NULL)
    assert_int_equal(PUT("u1", 1), 1);
    assert_int_equal(take_answer(w, "u1", 2), 1);
    assert_int_equal(PUT("u1", 1), 0);
    assert_int_equal(PUT("u1", 2), 0);
    assert_int_equal(PUT("u1", 3), 1);
    assert_int_equal(PUT("u2", 3), 1); /* another job of that name */
    store_begin_jobs(w->s, KUBE_JOB, 3);
    assert_int_equal(PUT("u2", 3), 1); /* a list always counts, and marks the job */
    store_end_jobs(w->s, KUBE_JOB);
    assert_int_equal(PUT("u2", 3), 0);
    store_rewind(w->s);
    assert_int_equal(PUT("u2", 3), 1);
#undef PUT
}

UNIT_TEST(an_answer_is_stored_only_for_a_known_job_and_when_newer)
{
    CLEANUP(world_close) struct world *w = world_open();
    struct job_text text;

    assert_int_equal(take_answer(w, "u1", 10), 0);
    assert_int_equal(store_job_text(w->s, "ns/demo", &text), -ENOENT);
    assert_int_equal(put_job(w, "u1", 10), 0);
    assert_int_equal(take_answer(w, "u1", 10), 0); /* nothing new: nobody is woken */
    assert_int_equal(take_answer(w, "u1", 9), 0);
    assert_int_equal(take_answer(w, "u0", 11), 0);
    assert_int_equal(take_answer(w, "u1", 11), 1);
    assert_non_null(strstr(text_of(w, "ns/demo"), "\"11\""));
    store_lose_job(w->s, "ns/demo", "u0");
    assert_int_equal(store_n_jobs(w->s, KUBE_JOB, STATE_PENDING), 1);
    store_lose_job(w->s, "ns/demo", "u1");
    assert_int_equal(store_n_jobs(w->s, KUBE_JOB, STATE_PENDING), 0);
    store_lose_job(w->s, "ns/demo", "u1");
    assert_int_equal(take_answer(w, "u1", 12), 0);
    assert_int_equal(store_job_text(w->s, "ns/demo", &text), -ENOENT);
}

UNIT_TEST(pods_of_another_uid_are_not_seen)
{
    CLEANUP(world_close) struct world *w = world_open();
    struct observed seen;

    assert_int_equal(put_job(w, "u1", 1), 0);
    assert_int_equal(put_pod(w, 0, "u0", POD_RUNNING), 0);
    assert_int_equal(put_pod(w, 1, "u1", POD_RUNNING), 0);
    seen = world_observe(w, 1);
    assert_int_equal(seen.crew[ROLE_WORKER].w[0].state, WORKER_ABSENT);
    assert_int_equal(seen.crew[ROLE_WORKER].w[1].state, WORKER_SEEN);
    w->job.uid = "u2";
    assert_int_equal(store_observe(w->s, "ns/demo", &w->job, &two, 1, &w->a, &seen),
                     -ENOENT);
}

UNIT_TEST(a_created_pod_is_expected_until_it_is_missed)
{
    CLEANUP(world_close) struct world *w = world_open();
    const struct fact there = {.state = FACT_THERE};
    uint64_t look_ns = EXPECT_LOOK_MS * 1000000ull;

    assert_int_equal(put_job(w, "u1", 1), 0);
    store_expect_pod(w->s, "ns/demo", "u1", ROLE_WORKER, 1, "p1", SECOND_NS);
    store_expect_pod(w->s, "ns/demo", "other", ROLE_WORKER, 0, "p0", SECOND_NS);
    store_know(w->s, "ns/demo", "u1", KUBE_SECRET, &there);
    assert_worker(w, 2 * SECOND_NS, 0, WORKER_ABSENT);
    assert_worker(w, 2 * SECOND_NS, 1, WORKER_EXPECTED);
    assert_int_equal(know_of(w, KUBE_SECRET), FACT_THERE);
    assert_int_equal(know_of(w, KUBE_SERVICE), FACT_UNKNOWN);
    assert_false(is_overdue(w, 2 * SECOND_NS, 1));
    assert_true(is_overdue(w, SECOND_NS + look_ns, 1));
    assert_worker(w, 9999 * look_ns, 1, WORKER_EXPECTED);
    store_expect_pod(w->s, "ns/demo", "u1", ROLE_WORKER, 1, "p1",
                     look_ns); /* asked for: it is there */
    assert_false(is_overdue(w, SECOND_NS + look_ns, 1));
    store_miss_pod(w->s, "ns/demo", "other", ROLE_WORKER, 1);
    store_miss_pod(w->s, "ns/demo", "u1", ROLE_WORKER, 7);
    assert_worker(w, 2 * look_ns, 1, WORKER_EXPECTED);
    store_miss_pod(w->s, "ns/demo", "u1", ROLE_WORKER, 1);
    assert_worker(w, 2 * look_ns, 1, WORKER_ABSENT);
    store_expect_pod(w->s, "ns/demo", "u1", ROLE_WORKER, 1, "p1", SECOND_NS);
    assert_int_equal(put_pod(w, 1, "u1", POD_RUNNING), 0); /* the very one */
    assert_worker(w, 2 * look_ns, 1, WORKER_SEEN);
    store_know(w->s, "ns/demo", "u1", KUBE_SERVICE, &there);
    store_doubt(w->s);
    assert_int_equal(know_of(w, KUBE_SERVICE), FACT_UNKNOWN);
    store_expect_pod(w->s, "ns/demo", "u1", ROLE_WORKER, 1, "p9", SECOND_NS);
    assert_worker(w, 2 * SECOND_NS, 1,
                  WORKER_EXPECTED);           /* the one in the cache is an older one */
    assert_int_equal(put_job(w, "u2", 2), 0); /* notes belong to one uid */
    w->job.uid = "u2";
    assert_worker(w, 2 * SECOND_NS, 1, WORKER_ABSENT);
    assert_int_equal(know_of(w, KUBE_SECRET), FACT_UNKNOWN);
}

UNIT_TEST(the_last_view_of_a_dropped_pod_is_kept)
{
    CLEANUP(world_close) struct world *w = world_open();
    struct observed seen;

    assert_int_equal(put_job(w, "u1", 1), 0);
    assert_int_equal(put_pod(w, 1, "u1", POD_RUNNING), 0);
    assert_string_equal(w->key, "ns/demo");
    assert_int_equal(put_pod(w, 1, "u1", POD_RUNNING), 0);
    assert_string_equal(w->key, ""); /* nothing new: nobody is woken */
    assert_int_equal(store_drop_pod(w->s, "ns", "demo-worker-1", w->key), 0);
    assert_string_equal(w->key, "ns/demo");
    seen = world_observe(w, 1);
    assert_int_equal(seen.crew[ROLE_WORKER].w[1].state, WORKER_GONE);
    assert_int_equal(seen.crew[ROLE_WORKER].w[1].pod->phase, POD_RUNNING);
    assert_int_equal(store_drop_pod(w->s, "ns", "demo-worker-1", w->key), 0);
    assert_string_equal(w->key, "");
    store_expect_pod(w->s, "ns/demo", "u1", ROLE_WORKER, 1, "p1", 1);
    assert_worker(w, 1, 1, WORKER_GONE);
    store_expect_pod(w->s, "ns/demo", "u1", ROLE_WORKER, 1, "p2", 1); /* made again */
    assert_worker(w, 1, 1, WORKER_EXPECTED);
}

static int put_batch(struct world *w, const char *uid, const char *owner)
{
    struct batch_job b;
    struct node *o = world_read(w,
                                "metadata: {namespace: ns, name: demo-launcher, uid: "
                                "%s, labels: {ringmaster.dev/job-name: demo}, "
                                "ownerReferences: [{controller: true, uid: %s}]}\n",
                                uid, owner);

    assert_int_equal(batch_decode(o, &b, NULL), 0);
    return store_put_batch(w->s, &b, w->key);
}

static void put_conditions(struct world *w, const char *list)
{
    struct node *o =
        world_read(w, WORKER_META "status: {phase: Running, conditions: [%s]}\n", 0, 0,
                   "u1", list);

    assert_int_equal(put_pod_object(w, KUBE_JOB, o), 0);
}

#define CONDITION(type, status) "{type: " type ", status: '" status "'}"

UNIT_TEST(conditions_of_pods_are_kept)
{
    CLEANUP(world_close) struct world *w = world_open();
    const struct pod *p;

    assert_int_equal(put_job(w, "u1", 1), 0);
    put_conditions(w,
                   CONDITION("Initialized", "False") "," CONDITION("a.b/c", "Unknown"));
    put_conditions(w,
                   CONDITION("Initialized", "True") "," CONDITION("a.b/c", "Unknown"));
    assert_string_equal(w->key, ""); /* what every pod goes through wakes nobody */
    p = world_observe(w, 0).crew[ROLE_WORKER].w[0].pod;
    assert_true(pod_has_condition(p, "Initialized", "True"));
    assert_true(pod_has_condition(p, "a.b/c", "Unknown"));
    assert_false(pod_has_condition(p, "a.b/c", "True"));
    assert_false(pod_has_condition(p, "b/c", "Unknown"));
    assert_false(pod_has_condition(p, "Ready", "False"));
    put_conditions(w, CONDITION("x", "True") "," CONDITION("a.b/c", "False"));
    assert_string_equal(w->key, "ns/demo");
    p = world_observe(w, 0).crew[ROLE_WORKER].w[0].pod;
    assert_true(pod_has_condition(p, "a.b/c", "False"));
    assert_true(pod_has_condition(p, "x", "True"));
    assert_false(pod_has_condition(p, "Initialized", "True"));
}

static int put_launcher(struct world *w, const char *owner)
{
    return put_pod_object(
        w, KUBE_MPIJOB,
        world_read(w,
                   "metadata: {namespace: ns, name: demo-launcher-x7, uid: l1, "
                   "creationTimestamp: '1970-01-01T00:01:00Z', labels: "
                   "{training.kubeflow.org/job-name: demo, "
                   "training.kubeflow.org/job-role: launcher}, "
                   "ownerReferences: [{controller: true, uid: %s}]}\n",
                   owner));
}

UNIT_TEST(a_pod_belongs_to_its_owner_whatever_its_labels)
{
    static const struct {
        const char *meta;
        bool is_hvd, is_mpi;
    } row[] = {
        {"{ownerReferences: [{kind: HorovodJob, controller: true}]}", true, false},
        {"{ownerReferences: [{kind: MPIJob, controller: true}]}", false, true},
        {"{ownerReferences: [{kind: Job, controller: true}]}", false, true},
        {"{}", true, true}};
    CLEANUP(world_close) struct world *w = world_open();

    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        const struct node *o = world_read(w, "metadata: %s\n", row[i].meta);

        assert_int_equal(pod_is_of(KUBE_JOB, o), row[i].is_hvd);
        assert_int_equal(pod_is_of(KUBE_MPIJOB, o), row[i].is_mpi);
    }
}

/* How many of the pods that bear the job's name are its own. */
static int count_own_pods(const struct world *w)
{
    struct keyed_range at = {0};
    const struct pod *p;
    int n = 0;

    while ((p = store_next_pod(w->s, &w->job, &at)))
        n += store_owns_pod(w->s, &w->job, p);
    return n;
}

UNIT_TEST(an_mpijob_has_a_launcher_job_and_its_pods)
{
    CLEANUP(world_close) struct world *w = world_open();
    struct observed seen;
    struct node *o = world_read(w, "metadata: {namespace: ns, name: demo, uid: m1}\n");

    w->job.kind = KUBE_MPIJOB;
    w->job.uid = "m1";
    w->job_key = "mpijob:ns/demo";
    assert_int_equal(store_put_job(w->s, KUBE_MPIJOB, o, w->key, NULL), 1);
    assert_string_equal(w->key, "mpijob:ns/demo");
    assert_int_equal(store_key_kind(w->key), KUBE_MPIJOB);
    assert_int_equal(put_job(w, "u1", 1), 0); /* a HorovodJob of that name beside it */
    store_expect_batch(w->s, "mpijob:ns/demo", "m1", "b1", SECOND_NS);
    assert_int_equal(put_launcher(w, "b1"), 0);
    assert_string_equal(w->key, "mpijob:ns/demo");
    seen = world_observe(w, 2 * SECOND_NS);
    assert_int_equal(seen.batch_state, WORKER_EXPECTED);
    assert_int_equal(seen.n_batch_pods, 0);
    assert_int_equal(count_own_pods(w), 0);
    assert_int_equal(put_batch(w, "b1", "m1"), 0);
    assert_int_equal(count_own_pods(w), 1);
    assert_string_equal(w->key, "mpijob:ns/demo");
    seen = world_observe(w, 1);
    assert_int_equal(seen.batch_state, WORKER_SEEN);
    assert_int_equal(seen.n_batch_pods, 1);
    assert_string_equal(seen.batch_pods[0]->uid, "l1");
    assert_int_equal(seen.batch_pods[0]->made_wall_us, 60000000u);
    store_drop_batch(w->s, "ns", "demo-launcher", w->key);
    assert_string_equal(w->key, "mpijob:ns/demo");
    seen = world_observe(w, 1);
    assert_int_equal(seen.batch_state, WORKER_GONE);
    assert_int_equal(seen.n_batch_pods, 1); /* the next launcher waits for it */
    assert_int_equal(count_own_pods(w), 1);
    assert_int_equal(put_launcher(w, "b2"), 0);
    assert_int_equal(put_batch(w, "b2", "another"), 0);
    assert_int_equal(count_own_pods(w), 0);
    assert_int_equal(world_observe(w, 1).batch_state, WORKER_GONE);
}

static void count_key(void *arg, const char *key)
{
    assert_string_equal(key, "ns/demo");
    ++*(int *)arg;
}

UNIT_TEST(a_relist_drops_objects_that_it_does_not_contain)
{
    CLEANUP(world_close) struct world *w = world_open();
    int n = 0;

    assert_int_equal(put_job(w, "u1", 1), 0);
    assert_int_equal(put_pod(w, 0, "u1", POD_RUNNING), 0);
    assert_int_equal(put_pod(w, 1, "u1", POD_RUNNING), 0);
    store_begin_pods(w->s, KUBE_JOB);
    assert_int_equal(put_pod(w, 0, "u1", POD_RUNNING), 0);
    assert_int_equal(store_end_pods(w->s, KUBE_JOB, count_key, &n), 0);
    assert_int_equal(n, 1);
    assert_int_equal(store_n_pods(w->s), 1);
    assert_worker(w, 1, 0, WORKER_SEEN);
    assert_worker(w, 1, 1, WORKER_GONE);
    store_begin_jobs(w->s, KUBE_JOB, 9);
    store_end_jobs(w->s, KUBE_JOB);
    assert_int_equal(store_n_jobs(w->s, KUBE_JOB, STATE_PENDING), 0);
}

/* Whether the job's stored text is that of this version. */
static bool has_version(const struct world *w, int version)
{
    char mark[64];

    (void)snprintf(mark, sizeof(mark), "\"resourceVersion\":\"%d\"", version);
    return strstr(text_of(w, w->key), mark) != NULL;
}

UNIT_TEST(an_older_job_in_a_list_is_taken_if_the_list_is_newer)
{
    static const struct {
        int stored, list, listed, kept;
    } t[] = {
        {5, 9, 7, 7},   /* newer */
        {5, 4, 3, 5},   /* the answer of a status write came after the list was made */
        {5, 5, 3, 3},   /* the list should have it: etcd was restored */
        {5, 100, 3, 3}, /* the same, with a revision that was raised */
        {5, 0, 3, 5},   /* a list without a version */
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        CLEANUP(world_close) struct world *w = world_open();

        assert_int_equal(put_job(w, "u1", t[i].stored), 0);
        store_begin_jobs(w->s, KUBE_JOB, (uint64_t)t[i].list);
        assert_int_equal(put_job(w, "u1", t[i].listed), 0);
        assert_true(has_version(w, t[i].kept));
        store_end_jobs(w->s, KUBE_JOB);
        assert_int_equal(put_job(w, "u1", 2), 0); /* an event that was sent again */
        assert_true(has_version(w, t[i].kept));
    }
}

UNIT_TEST(after_versions_went_back_older_jobs_are_taken)
{
    CLEANUP(world_close) struct world *w = world_open();

    assert_int_equal(put_job(w, "u1", 5), 0);
    store_rewind(w->s);
    assert_int_equal(put_job(w, "u1", 3), 0);
    assert_true(has_version(w, 3));
}

static struct node *
world_make_service(struct world *w, const char *uid, const char *owner)
{
    return world_read(w,
                      "metadata: {namespace: ns, name: demo, uid: %s, labels: "
                      "{ringmaster.dev/job-name: demo}, "
                      "ownerReferences: [{uid: %s, controller: true}]}\n",
                      uid, owner);
}

UNIT_TEST(an_object_that_a_metadata_watch_does_not_show_is_absent)
{
    struct fact there = {.state = FACT_THERE, .uid = "s1"};
    CLEANUP(world_close) struct world *w = world_open();
    int n = 0;

    assert_int_equal(put_job(w, "u1", 1), 0);
    store_know(w->s, w->key, "u1", KUBE_SERVICE, &there);
    store_lose_owned(w->s, KUBE_SERVICE, world_make_service(w, "s0", "u1"),
                     w->key); /* older */
    assert_string_equal(w->key, "");
    store_lose_owned(w->s, KUBE_SERVICE, world_make_service(w, "s1", "u0"),
                     w->key); /* another's */
    assert_string_equal(w->key, "");
    assert_int_equal(know_of(w, KUBE_SERVICE), FACT_THERE);
    store_lose_owned(w->s, KUBE_SERVICE, world_make_service(w, "s1", "u1"), w->key);
    assert_string_equal(w->key, "ns/demo");
    assert_int_equal(know_of(w, KUBE_SERVICE), FACT_ABSENT);
    store_know(w->s, "ns/demo", "u1", KUBE_SERVICE,
               &there); /* an answer that is late */
    assert_int_equal(know_of(w, KUBE_SERVICE), FACT_ABSENT);
    (void)snprintf(there.uid, sizeof(there.uid), "s2");
    /* lists: shown, confirmed by an answer meanwhile, neither, neither again */
    store_know(w->s, "ns/demo", "u1", KUBE_SERVICE, &there);
    store_begin_owned(w->s, KUBE_SERVICE);
    store_put_owned(w->s, KUBE_SERVICE, world_make_service(w, "s2", "u1"));
    store_end_owned(w->s, KUBE_SERVICE, count_key, &n);
    store_begin_owned(w->s, KUBE_SERVICE);
    store_know(w->s, "ns/demo", "u1", KUBE_SERVICE, &there);
    store_end_owned(w->s, KUBE_SERVICE, count_key, &n);
    assert_int_equal(know_of(w, KUBE_SERVICE), FACT_THERE);
    assert_int_equal(n, 0);
    for (int i = 0; i < 2; i++) {
        store_begin_owned(w->s, KUBE_SERVICE);
        store_end_owned(w->s, KUBE_SERVICE, count_key, &n);
    }
    assert_int_equal(know_of(w, KUBE_SERVICE), FACT_ABSENT);
    assert_int_equal(n, 1);
    /* of a PodGroup that was never asked for, an old one without label says nothing */
    store_begin_owned(w->s, KUBE_VOLCANO_GROUP);
    store_end_owned(w->s, KUBE_VOLCANO_GROUP, count_key, &n);
    assert_int_equal(know_of(w, KUBE_VOLCANO_GROUP), FACT_UNKNOWN);
}

/* An end that is not noted would be that of a pod which never was. */
UNIT_TEST(a_pod_whose_deletion_cannot_be_recorded_stays_until_it_can)
{
    CLEANUP(world_close) struct world *w = world_open();
    int n = 0;

    assert_int_equal(put_job(w, "u1", 1), 0);
    assert_int_equal(put_pod(w, 0, "u1", POD_RUNNING), 0);
    assert_int_equal(put_pod(w, 1, "u1", POD_RUNNING), 0);
    mem_fail_after(0);
    assert_int_equal(store_drop_pod(w->s, "ns", "demo-worker-0", w->key), -ENOMEM);
    assert_int_equal(store_n_pods(w->s), 2);
    assert_int_equal(store_drop_pod(w->s, "ns", "demo-worker-0", w->key), 0);
    assert_worker(w, 1, 0, WORKER_GONE);
    store_begin_pods(w->s, KUBE_JOB);
    mem_fail_after(0);
    assert_int_equal(store_end_pods(w->s, KUBE_JOB, count_key, &n), -ENOMEM);
    assert_int_equal(store_n_pods(w->s), 1);
    assert_int_equal(store_end_pods(w->s, KUBE_JOB, count_key, &n), 0);
    assert_int_equal(n, 1);
    assert_worker(w, 1, 1, WORKER_GONE);
}

static int store_fill(void *arg)
{
    struct world w = {.s = store_new()};
    int rc = w.s ? 0 : -ENOMEM;

    (void)arg;
    arena_init(&w.a, 1u << 20);
    if (rc == 0)
        rc = put_job(&w, "u1", 1);
    if (rc == 0)
        rc = put_pod(&w, 0, "u1", POD_RUNNING);
    if (rc == 0)
        rc = put_pod(&w, 1, "u1", POD_PENDING);
    if (rc == 0)
        rc = put_pod(&w, 1, "u1", POD_RUNNING);
    store_free(w.s);
    arena_release(&w.a);
    return rc;
}

UNIT_TEST(without_memory_nothing_breaks)
{
    torture(store_fill, NULL);
}

UNIT_MAIN(NULL, NULL)
