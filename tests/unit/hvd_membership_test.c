/* SPDX-License-Identifier: Apache-2.0 */
/* The connection of a process of an elastic job, against a launcher in this thread. */
#include "runtime/world/membership.h"

#include <errno.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "tests/lib/elastic_leader.h"
#include "tests/unit/unit.h"

static const uint64_t PATIENCE_NS = 20 * NS_PER_S;

struct job {
    struct leader leader;
    struct membership *m;
    pthread_t thread;
    /* the thread's, until it is joined */
    struct contract c;
    struct err err;
    int rc;
};

static void job_open(struct job *j)
{
    char path[64], text[80];
    struct err err = ERR_INIT;

    (void)snprintf(path, sizeof(path), "/tmp/hvd-unit-%d.token", (int)getpid());
    memset(j, 0, sizeof(*j));
    if (leader_open(&j->leader, path, &err) < 0)
        fail_msg("%s", err.text);
    (void)unlink(path);
    (void)snprintf(text, sizeof(text), "%s:7.3", j->leader.name);
    if (membership_open(text, LEADER_JOB, &j->m, &err) < 0)
        fail_msg("%s", err.text);
}

static void job_close(struct job *j)
{
    membership_close(j->m);
    leader_close(&j->leader);
}

static void *join_main(void *arg)
{
    struct job *j = arg;

    contract_init(&j->c);
    j->c.place.host = 5;
    j->c.rank0_serves = true;
    j->rc = membership_join(j->m, &j->c, &j->err);
    return NULL;
}

static void join_begin(struct job *j)
{
    assert_int_equal(pthread_create(&j->thread, NULL, join_main, j), 0);
}

static int join_end(struct job *j)
{
    assert_int_equal(pthread_join(j->thread, NULL), 0);
    return j->rc;
}

/* The next message. */
static struct member_message message_take(struct job *j, enum member_message_type type)
{
    struct leader_event e = leader_next(&j->leader, -1, clock_now_ns() + PATIENCE_NS);

    assert_int_equal(e.type, LEADER_MESSAGE);
    assert_int_equal(e.message.type, type);
    return e.message;
}

static void assert_ready(struct job *j, uint32_t generation)
{
    struct member_message m = message_take(j, MEMBER_READY);

    assert_int_equal(m.slot, 7);
    assert_int_equal(m.incarnation, 3);
    assert_int_equal(m.generation, generation);
}

static void form_send(struct job *j, uint32_t generation, uint32_t rank)
{
    struct member_message m = {.type = MEMBER_FORM,
                               .generation = generation,
                               .place = {rank, 4, rank % 2, 2, rank / 2, 2, 0},
                               .rdv_port = 1234,
                               .rdv_host = "10.0.0.1"};

    leader_send(&j->leader, 7, &m);
}

/* Returns when what was sent has been applied: the thread has taken a later message. */
static void messages_drain(struct job *j)
{
    struct member_message marker = {.type = MEMBER_NOTIFY, .generation = UINT32_MAX};
    int left = 1;

    leader_send(&j->leader, 7, &marker);
    while (left > 0) {
        (void)sched_yield();
        assert_int_equal(ioctl(j->leader.v[0].fd, SIOCOUTQ, &left), 0);
    }
}

static void join_world(struct job *j, uint32_t generation, uint32_t last)
{
    join_begin(j);
    assert_ready(j, last);
    form_send(j, generation, 1);
    assert_int_equal(join_end(j), 0);
}

static void
change_send(struct job *j, enum member_message_type type, uint32_t generation)
{
    struct member_message m = {.type = type, .generation = generation, .change = 2};

    (void)snprintf(m.why, sizeof(m.why), "world %u is over", generation);
    leader_send(&j->leader, 7, &m);
}

UNIT_TEST(a_world_is_what_the_launcher_sends)
{
    struct job j;

    job_open(&j);
    join_world(&j, 65537, 0);
    assert_int_equal(j.c.generation, 65537);
    assert_int_equal(j.c.place.rank, 1);
    assert_int_equal(j.c.place.size, 4);
    assert_int_equal(j.c.place.local_rank, 1);
    assert_int_equal(j.c.place.local_size, 2);
    assert_int_equal(j.c.place.cross_rank, 0);
    assert_int_equal(j.c.place.cross_size, 2);
    assert_int_equal(j.c.place.host, 5);
    assert_string_equal(j.c.rdv_host, "10.0.0.1");
    assert_int_equal(j.c.rdv_port, 1234);
    assert_false(j.c.rank0_serves);
    assert_int_equal(membership_generation(j.m), 65537);
    assert_int_equal(membership_check(j.m, NULL), 0);
    job_close(&j);
}

/* The latest one counts, and one that is not later than the last world never. */
UNIT_TEST(only_a_later_world_is_joined)
{
    struct job j;

    job_open(&j);
    join_world(&j, 4, 0);
    join_begin(&j);
    assert_ready(&j, 4);
    form_send(&j, 4, 2);
    form_send(&j, 3, 2);
    form_send(&j, 6, 3);
    form_send(&j, 5, 2);
    assert_int_equal(join_end(&j), 0);
    assert_int_equal(j.c.generation, 6);
    assert_int_equal(j.c.place.rank, 3);
    job_close(&j);
}

/* It is reported, since the launcher waits for those that were in it. */
UNIT_TEST(a_world_that_breaks_before_it_is_joined_is_left)
{
    struct job j;

    job_open(&j);
    join_world(&j, 1, 0);
    form_send(&j, 2, 1);
    change_send(&j, MEMBER_BREAK, 2);
    form_send(&j, 3, 1);
    change_send(&j, MEMBER_BREAK, 3);
    change_send(&j, MEMBER_NOTIFY, 3);
    messages_drain(&j);
    join_begin(&j);
    assert_ready(&j, 1);
    assert_ready(&j, 3);
    form_send(&j, 4, 0);
    assert_int_equal(join_end(&j), 0);
    assert_int_equal(j.c.generation, 4);
    assert_int_equal(membership_take_change(j.m), 0);
    job_close(&j);
}

/* --- the end of a world --- */

struct ending {
    _Atomic int n;
    char why[200];
};

static void end_note(void *arg, const char *why)
{
    struct ending *e = arg;

    (void)snprintf(e->why, sizeof(e->why), "%s", why);
    atomic_fetch_add(&e->n, 1);
}

static void assert_ends(struct ending *e, const char *why)
{
    uint64_t until = clock_now_ns() + PATIENCE_NS;

    while (atomic_load(&e->n) == 0 && clock_now_ns() < until)
        (void)sched_yield();
    assert_int_equal(atomic_load(&e->n), 1);
    assert_string_equal(e->why, why);
}

UNIT_TEST(break_ends_the_world_it_names)
{
    struct ending e = {0};
    struct job j;

    job_open(&j);
    join_world(&j, 2, 0);
    membership_watch(j.m, end_note, &e);
    change_send(&j, MEMBER_BREAK, 1);
    change_send(&j, MEMBER_BREAK, 3);
    messages_drain(&j);
    assert_int_equal(atomic_load(&e.n), 0);
    assert_int_equal(membership_check(j.m, NULL), 0);
    change_send(&j, MEMBER_BREAK, 2);
    assert_ends(&e, "world 2 is over");
    assert_int_equal(membership_check(j.m, &j.err), -ECANCELED);
    assert_string_equal(j.err.text, "world 2 is over");
    change_send(&j, MEMBER_BREAK, 2);
    form_send(&j, 2, 1); /* the same again does not repair it */
    messages_drain(&j);
    assert_int_equal(membership_check(j.m, NULL), -ECANCELED);
    join_world(&j, 3, 2);
    assert_int_equal(atomic_load(&e.n), 1); /* it is no longer watched */
    job_close(&j);
}

UNIT_TEST(a_world_that_is_over_already_ends_when_it_is_watched)
{
    struct ending e = {0};
    struct job j;

    job_open(&j);
    join_world(&j, 1, 0);
    form_send(&j, 2, 0);
    messages_drain(&j);
    membership_watch(j.m, end_note, &e);
    assert_ends(&e, "the launcher has formed a later world");
    membership_unwatch(j.m);
    job_close(&j);
}

UNIT_TEST(a_world_that_is_not_watched_is_not_ended)
{
    struct ending e = {0};
    struct job j;

    job_open(&j);
    join_world(&j, 1, 0);
    membership_watch(j.m, end_note, &e);
    membership_unwatch(j.m);
    change_send(&j, MEMBER_BREAK, 1);
    messages_drain(&j);
    membership_close(j.m); /* waits for the thread */
    j.m = NULL;
    assert_int_equal(atomic_load(&e.n), 0);
    job_close(&j);
}

/* --- the end of the launcher --- */

UNIT_TEST(the_end_of_the_launcher_ends_the_world_and_the_wait)
{
    struct ending e = {0};
    struct job j;

    job_open(&j);
    join_world(&j, 1, 0);
    membership_watch(j.m, end_note, &e);
    join_begin(&j);
    assert_ready(&j, 1);
    leader_close(&j.leader);
    assert_int_equal(join_end(&j), -EPIPE);
    assert_string_equal(j.err.text, "the launcher of this process has gone");
    assert_ends(&e, "the launcher of this process has gone");
    join_begin(&j);
    assert_int_equal(join_end(&j), -EPIPE);
    job_close(&j);
}

UNIT_TEST(a_launcher_that_sends_nonsense_counts_as_gone)
{
    struct job j;
    const char *is;

    job_open(&j);
    join_begin(&j);
    assert_ready(&j, 0);
    assert_true(send(j.leader.v[0].fd, "\x09zz", 3, MSG_NOSIGNAL) == 3);
    assert_int_equal(join_end(&j), -EPIPE);
    is = "the launcher of this process: an elastic message has the unknown type 9";
    assert_string_equal(j.err.text, is);
    job_close(&j);
}

/* --- changes and commits --- */

UNIT_TEST(changes_are_those_of_the_present_world)
{
    struct job j;

    job_open(&j);
    join_world(&j, 2, 0);
    assert_int_equal(membership_take_change(j.m), 0);
    change_send(&j, MEMBER_NOTIFY, 1);
    change_send(&j, MEMBER_NOTIFY, 3);
    messages_drain(&j);
    assert_int_equal(membership_take_change(j.m), 0);
    leader_notify(&j.leader, 2, MEMBER_CHANGE_REMOVED);
    leader_notify(&j.leader, 2, MEMBER_CHANGE_ADDED);
    messages_drain(&j);
    assert_int_equal(membership_take_change(j.m), 3);
    assert_int_equal(membership_take_change(j.m), 0);
    leader_notify(&j.leader, 2, MEMBER_CHANGE_ADDED);
    form_send(&j, 3, 1); /* that was of world 2 */
    messages_drain(&j);
    assert_int_equal(membership_take_change(j.m), 0);
    join_begin(&j);
    assert_ready(&j, 2);
    assert_int_equal(join_end(&j), 0);
    assert_int_equal(membership_take_change(j.m), 0);
    job_close(&j);
}

UNIT_TEST(a_process_that_fails_reports_its_end_and_why)
{
    struct member_message m;
    struct job j;

    job_open(&j);
    join_world(&j, 2, 0);
    membership_end(j.m, "ended: ValueError");
    m = message_take(&j, MEMBER_ENDING);
    assert_int_equal(m.generation, 2);
    assert_string_equal(m.why, "ended: ValueError");
    job_close(&j);
}

UNIT_TEST(commits_are_sent_once_a_second_for_a_world)
{
    struct job j;

    job_open(&j);
    join_world(&j, 2, 0);
    membership_commit(j.m, 2, 5 * NS_PER_S);
    membership_commit(j.m, 2, 6 * NS_PER_S - 1);
    membership_commit(j.m, 2, 6 * NS_PER_S);
    membership_commit(j.m, 3, 6 * NS_PER_S + 1);
    assert_int_equal(message_take(&j, MEMBER_COMMIT).generation, 2);
    assert_int_equal(message_take(&j, MEMBER_COMMIT).generation, 2);
    assert_int_equal(message_take(&j, MEMBER_COMMIT).generation, 3);
    join_begin(&j);
    assert_ready(&j, 2); /* there was no other one */
    form_send(&j, 3, 0);
    assert_int_equal(join_end(&j), 0);
    job_close(&j);
}

/* --- who may connect --- */

UNIT_TEST(nobody_listens)
{
    struct membership *m = NULL;
    struct err err = ERR_INIT;

    assert_int_equal(membership_open("hvd-nobody:1.1", "j", &m, &err), -ECONNREFUSED);
    assert_non_null(strstr(err.text, "the launcher of this process (HVD_ELASTIC): "));
    assert_int_equal(membership_open("hvd-nobody", "j", &m, &err), -EINVAL);
    assert_null(m);
}

/* Of a process that has inherited the variable. */
UNIT_TEST(a_slot_is_one_process)
{
    struct membership *other = NULL;
    char text[80];
    struct job j;
    int status;
    pid_t pid;

    job_open(&j);
    (void)snprintf(text, sizeof(text), "%s:7.3", j.leader.name);
    pid = fork();
    if (pid == 0)
        _exit(membership_open(text, LEADER_JOB, &other, NULL) == -EINVAL ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    pid = fork();
    if (pid == 0) {
        struct contract c;

        membership_forked(j.m);
        contract_init(&c);
        _exit(membership_join(j.m, &c, NULL) == -EINVAL
                      && membership_take_change(j.m) == 0
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    join_world(&j, 1, 0); /* the parent's part is as before */
    job_close(&j);
}

UNIT_MAIN(NULL, NULL)
