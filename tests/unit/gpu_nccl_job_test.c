/* SPDX-License-Identifier: Apache-2.0 */
/* The fake of NCCL: whose is what a non-blocking communicator has in progress, which
 * differs between versions, and what ends the test because it would crash in NCCL now
 * and then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/nccl_members.h"

static int test_setup(void **state)
{
    (void)state;
    (void)setenv("HVD_FAKE_HANG_S", "30", 1);
    nccl.faults("init_hang=0");
    return 0;
}

static void *thread_queries(void *arg)
{
    struct member *m = arg;
    int rc;

    (void)nccl.async_error(m->c, &rc);
    return NULL;
}

static void *thread_aborts(void *arg)
{
    struct member *m = arg;

    (void)nccl.abort(m->c);
    return NULL;
}

static void *thread_inits(void *arg)
{
    struct member *m = arg;
    struct nccl_config config = config_of(false);

    (void)nccl.init_config(&m->c, m->n, m->id, m->rank, &config);
    return NULL;
}

static void on_thread(struct member *m, void *(*what)(void *arg))
{
    pthread_t t;

    WANT(m, pthread_create(&t, NULL, what, m) == 0);
    WANT(m, pthread_join(t, NULL) == 0);
}

static void asked_elsewhere(struct member *m)
{
    (void)thread_inits(m);
    on_thread(m, thread_queries);
}

static void aborted_elsewhere(struct member *m)
{
    (void)thread_inits(m);
    on_thread(m, thread_aborts);
}

static void began_on_one_that_is_gone(struct member *m)
{
    on_thread(m, thread_inits);
    (void)nccl.abort(m->c);
}

static void revoked_amid(struct member *m)
{
    (void)thread_inits(m);
    (void)nccl.revoke(m->c, 0);
}

/* The child is used while the parent's group has only been seen to be over. */
static void not_taken_up(struct member *m)
{
    nccl_comm child = NULL;
    float x[8] = {0};

    WANT(m, member_start(m) == NCCL_OK);
    int rc = nccl.split(m->c, 0, m->rank, &child, NULL);
    WANT(m, comm_wait_birth(m->c, rc) == NCCL_OK);
    rc = nccl.all_reduce(x, x, 8, NCCL_F32, NCCL_SUM, m->c, &m->s);
    WANT(m, comm_wait(m->c, rc) == NCCL_OK);
    stream_sync(&m->s);
    (void)nccl.all_reduce(x, x, 8, NCCL_F32, NCCL_SUM, child, &m->s);
}

static void version_set(const char *text)
{
    (void)setenv("HVD_FAKE_NCCL", text, 1);
}

static void asking_takes_it_up_since_2_26(void **state)
{
    (void)state;
    version_set("22605");
    run_dies(2, asked_elsewhere, "while another thread has begun something");
}

static void it_is_in_memory_of_its_thread_until_2_26(void **state)
{
    (void)state;
    version_set("22605");
    run_dies(2, began_on_one_that_is_gone, "after the end of the thread");
    version_set("22705");
    members_run(2, began_on_one_that_is_gone);
}

static void its_thread_alone_aborts_it_until_2_18(void **state)
{
    (void)state;
    version_set("21805");
    run_dies(2, aborted_elsewhere, "ncclCommAbort of what another thread has");
    version_set("22105");
    members_run(2, aborted_elsewhere);
}

static void it_is_not_revoked(void **state)
{
    (void)state;
    version_set("22809");
    run_dies(2, revoked_amid, "ncclCommRevoke of a group in progress");
}

static void it_is_taken_up_before_another_begins(void **state)
{
    (void)state;
    nccl.faults("");
    version_set("22505");
    run_dies(2, not_taken_up, "of another communicator that was not taken up");
}

int main(void)
{
    if (load_nccl())
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(asking_takes_it_up_since_2_26, test_setup),
        cmocka_unit_test_setup(it_is_in_memory_of_its_thread_until_2_26, test_setup),
        cmocka_unit_test_setup(its_thread_alone_aborts_it_until_2_18, test_setup),
        cmocka_unit_test_setup(it_is_not_revoked, test_setup),
        cmocka_unit_test_setup(it_is_taken_up_before_another_begins, test_setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
