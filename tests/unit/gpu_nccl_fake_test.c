/* SPDX-License-Identifier: Apache-2.0 */
/* The fake of NCCL itself: that it computes what NCCL computes, is in progress where
 * NCCL is, and ends the test by a sentence where NCCL would hang or forbids a call.
 * Members are threads; a stream is a thread with a queue. What ends a test runs in a
 * child process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/base/mem.h"
#include "tests/unit/nccl_members.h"

static int test_setup(void **state)
{
    (void)state;
    (void)unsetenv("HVD_FAKE_NCCL");
    (void)setenv("HVD_FAKE_HANG_S", "30", 1);
    nccl.faults("");
    return 0;
}

/* --- what it computes --- */

enum { COUNT = 1000 };

static float value_of(int rank, int i)
{
    return (float)((rank + 1) * (i % 37));
}

static void member_reduces(struct member *m)
{
    float in[COUNT], out[COUNT], sum[COUNT] = {0};
    int32_t small[3] = {m->rank, -m->rank, 7}, most[3];

    WANT(m, member_start(m) == NCCL_OK);
    for (int i = 0; i < COUNT; i++) {
        in[i] = value_of(m->rank, i);
        for (int r = 0; r < m->n; r++)
            sum[i] += value_of(r, i);
    }
    nccl.group_start();
    WANT(m, !nccl.all_reduce(in, out, COUNT, NCCL_F32, NCCL_SUM, m->c, &m->s));
    WANT(m, !nccl.all_reduce(small, most, 3, NCCL_I32, NCCL_MAX, m->c, &m->s));
    WANT(m, comm_wait(m->c, nccl.group_end()) == NCCL_OK);
    stream_sync(&m->s);
    WANT(m, memcmp(out, sum, sizeof(sum)) == 0);
    WANT(m, most[0] == m->n - 1 && most[1] == 0 && most[2] == 7);

    /* in place, only on the root, and in parts */
    WANT(m, !comm_wait(m->c, nccl.reduce(in, m->rank == 1 ? out : NULL, COUNT, NCCL_F32,
                                         NCCL_AVG, 1, m->c, &m->s)));
    stream_sync(&m->s);
    for (int i = 0; i < COUNT && m->rank == 1; i++)
        WANT(m, out[i] == sum[i] / (float)m->n);
    WANT(m, !comm_wait(m->c, nccl.reduce_scatter(in, out, COUNT / 4, NCCL_F32, NCCL_SUM,
                                                 m->c, &m->s)));
    stream_sync(&m->s);
    WANT(m, memcmp(out, sum + m->rank * (COUNT / 4), COUNT / 4 * sizeof(float)) == 0);
    WANT(m, comm_wait(m->c, nccl.finalize(m->c)) == NCCL_OK);
    WANT(m, nccl.destroy(m->c) == NCCL_OK);
}

static void it_reduces_as_defined(void **state)
{
    (void)state;
    members_run(4, member_reduces);
    run_as(4, true, member_reduces);
}

static void member_moves(struct member *m)
{
    char in[64], out[MAX * 64];
    int next = (m->rank + 1) % m->n, last = (m->rank + m->n - 1) % m->n;

    WANT(m, member_start(m) == NCCL_OK);
    memset(in, 'a' + m->rank, sizeof(in));
    WANT(m, !comm_wait(m->c, nccl.all_gather(in, out, 64, NCCL_U8, m->c, &m->s)));
    stream_sync(&m->s);
    for (int i = 0; i < 64 * m->n; i++)
        WANT(m, out[i] == 'a' + i / 64);
    WANT(m, !comm_wait(m->c, nccl.broadcast(in, out, 64, NCCL_U8, 2, m->c, &m->s)));
    stream_sync(&m->s);
    WANT(m, out[0] == 'c' && out[63] == 'c');

    /* in a circle and to oneself, all at once */
    nccl.group_start();
    WANT(m, !nccl.send(in, 64, NCCL_U8, next, m->c, &m->s));
    WANT(m, !nccl.recv(out, 64, NCCL_U8, last, m->c, &m->s));
    WANT(m, !nccl.recv(out + 64, 32, NCCL_U8, m->rank, m->c, &m->s));
    WANT(m, !nccl.send(in, 32, NCCL_U8, m->rank, m->c, &m->s));
    WANT(m, !comm_wait(m->c, nccl.group_end()));
    stream_sync(&m->s);
    WANT(m, out[0] == 'a' + last && out[64] == 'a' + m->rank);
    WANT(m, nccl.destroy(m->c) == NCCL_OK);
}

static void it_moves_as_defined(void **state)
{
    (void)state;
    members_run(3, member_moves);
    char *log = nccl.log(2);
    assert_non_null(strstr(log, "3 AllGather of 64 u8"));
    assert_non_null(strstr(log, "3 Broadcast of 64 u8, sum, root 2"));
    free(log);
}

/* --- what would hang --- */

static void member_differs(struct member *m)
{
    float x[8] = {0};

    WANT(m, member_start(m) == NCCL_OK);
    (void)comm_wait(m->c, nccl.all_reduce(x, x, m->rank == 1 ? 4 : 8, NCCL_F32,
                                          NCCL_SUM, m->c, &m->s));
    stream_sync(&m->s);
}

static void differ_in_kind(struct member *m)
{
    float x[8] = {0};

    WANT(m, member_start(m) == NCCL_OK);
    (void)comm_wait(m->c, m->rank ? nccl.broadcast(x, x, 8, NCCL_F32, 0, m->c, &m->s)
                                  : nccl.send(x, 8, NCCL_F32, 1, m->c, &m->s));
    stream_sync(&m->s);
}

static void stay_away(struct member *m)
{
    float x[8] = {0};

    WANT(m, member_start(m) == NCCL_OK);
    if (m->rank == 0)
        (void)comm_wait(m->c,
                        nccl.all_reduce(x, x, 8, NCCL_F32, NCCL_SUM, m->c, &m->s));
    stream_sync(&m->s);
    (void)pthread_barrier_wait(m->meet);
}

static void what_would_hang_ends_the_test(void **state)
{
    (void)state;
    run_dies(2, member_differs, "which does AllReduce of");
    run_dies(2, differ_in_kind, "differ, they would hang");
    (void)setenv("HVD_FAKE_HANG_S", "3", 1);
    run_dies(2, stay_away, "waits for member 1 (AllReduce of 8 f32");
}

/* --- what is forbidden --- */

static void in_progress(struct member *m)
{
    struct nccl_config config = config_of(false);
    float x[8] = {0};

    if (m->rank == 0) { /* the other does not come */
        (void)nccl.init_config(&m->c, m->n, m->id, m->rank, &config);
        (void)nccl.all_reduce(x, x, 8, NCCL_F32, NCCL_SUM, m->c, &m->s);
    }
    (void)pthread_barrier_wait(m->meet);
}

static void after_abort(struct member *m)
{
    int rc;

    WANT(m, member_start(m) == NCCL_OK);
    WANT(m, nccl.abort(m->c) == NCCL_OK);
    (void)nccl.async_error(m->c, &rc);
}

static void destroy_early(struct member *m)
{
    float x[8] = {0};

    WANT(m, member_start(m) == NCCL_OK);
    if (m->rank == 0) {
        (void)comm_wait(m->c,
                        nccl.all_reduce(x, x, 8, NCCL_F32, NCCL_SUM, m->c, &m->s));
        (void)nccl.destroy(m->c);
    }
    (void)pthread_barrier_wait(m->meet);
}

static void split_early(struct member *m)
{
    float x[8] = {0};
    nccl_comm child;

    WANT(m, member_start(m) == NCCL_OK);
    if (m->rank == 0) {
        (void)comm_wait(m->c,
                        nccl.all_reduce(x, x, 8, NCCL_F32, NCCL_SUM, m->c, &m->s));
        (void)nccl.split(m->c, 0, 0, &child, NULL);
    }
    (void)pthread_barrier_wait(m->meet);
}

static void *blocked_call(void *arg)
{
    struct member *m = arg;

    (void)nccl.finalize(m->c);
    return NULL;
}

/* A blocking communicator's finalize waits for the kernel. */
static void two_threads(struct member *m)
{
    float x[8] = {0};
    pthread_t t;

    m->blocks = true;
    WANT(m, member_start(m) == NCCL_OK);
    if (m->rank == 0) {
        (void)nccl.all_reduce(x, x, 8, NCCL_F32, NCCL_SUM, m->c, &m->s);
        WANT(m, pthread_create(&t, NULL, blocked_call, m) == 0);
        for (int i = 0; i < 200; i++) { /* until the thread is inside */
            (void)usleep(100000);
            (void)nccl.all_reduce(x, x, 8, NCCL_F32, NCCL_SUM, m->c, &m->s);
        }
    }
    (void)pthread_barrier_wait(m->meet);
}

static void too_new(struct member *m)
{
    nccl_comm child;

    WANT(m, member_start(m) == NCCL_OK);
    (void)nccl.split(m->c, 0, 0, &child, NULL);
}

static void what_is_forbidden_ends_the_test(void **state)
{
    (void)state;
    run_dies(2, in_progress, "ncclAllReduce while the call before is in progress");
    run_dies(1, after_abort, "ncclCommGetAsyncError of a communicator that was");
    run_dies(2, destroy_early, "ncclCommDestroy with outstanding operations");
    run_dies(2, split_early, "ncclCommSplit with outstanding operations");
    run_dies(2, two_threads, "ncclAllReduce while another thread is inside");
    (void)setenv("HVD_FAKE_NCCL", "21706", 1);
    run_dies(1, too_new, "ncclCommSplit is not in NCCL 21706");
    (void)setenv("HVD_FAKE_NCCL", "21003", 1);
    run_dies(1, after_abort, "ncclCommInitRankConfig is not in NCCL 21003");
}

/* --- versions --- */

static void configs_are_read_as_each_version_does(void **state)
{
    static const struct {
        const char *version;
        int min_ctas, split_share, rc;
    } rows[] = {
        {"21403", 0, 5, NCCL_OK},       {"21706", 0, 5, NCCL_ARGUMENT},
        {"21706", 1, 5, NCCL_OK},       {"21801", 1, 5, NCCL_ARGUMENT},
        {"21801", INT_MIN, 1, NCCL_OK},
    };
    struct nccl_id id;
    nccl_comm c;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct nccl_config config = config_of(true);

        config.min_ctas = rows[i].min_ctas;
        config.split_share = rows[i].split_share;
        (void)setenv("HVD_FAKE_NCCL", rows[i].version, 1);
        assert_int_equal(nccl.unique_id(&id), NCCL_OK);
        int rc = nccl.init_config(&c, 1, id, 0, &config);
        assert_int_equal(rc, rows[i].rc);
        if (rc == NCCL_OK)
            assert_int_equal(nccl.destroy(c), NCCL_OK);
    }
    struct nccl_config config = config_of(false);
    config.magic = 1;
    assert_int_equal(nccl.init_config(&c, 1, id, 0, &config), NCCL_ARGUMENT);
    int v = 0;
    assert_int_equal(nccl.get_version(&v), NCCL_OK);
    assert_int_equal(v, 21801);
}

/* From 2.23.4 on each group of a non-blocking one is in progress, before that the
 * first. */
static void member_groups(struct member *m)
{
    float x[8] = {0};
    int version, want_again;

    WANT(m, member_start(m) == NCCL_OK);
    WANT(m, nccl.get_version(&version) == NCCL_OK);
    want_again = version >= 22304 ? NCCL_IN_PROGRESS : NCCL_OK;
    int rc = nccl.all_reduce(x, x, 8, NCCL_F32, NCCL_SUM, m->c, &m->s);
    WANT(m, rc == NCCL_IN_PROGRESS && comm_wait(m->c, rc) == NCCL_OK);
    rc = nccl.all_reduce(x, x, 8, NCCL_F32, NCCL_SUM, m->c, &m->s);
    WANT(m, rc == want_again && comm_wait(m->c, rc) == NCCL_OK);
    stream_sync(&m->s);
    WANT(m, nccl.destroy(m->c) == NCCL_OK);
}

static void groups_are_in_progress_where_nccls_are(void **state)
{
    (void)state;
    (void)setenv("HVD_FAKE_NCCL", "22105", 1);
    members_run(2, member_groups);
    (void)setenv("HVD_FAKE_NCCL", "22304", 1);
    members_run(2, member_groups);
}

/* --- children --- */

static void member_splits(struct member *m)
{
    nccl_comm child = (nccl_comm)1;
    int32_t x = 1 << m->rank;

    WANT(m, member_start(m) == NCCL_OK);
    /* 0 and 2, in the other order */
    int color = m->rank == 1 ? NCCL_NOCOLOR : 5;
    if (m->rank > 0) /* till then it cannot end */
        (void)pthread_barrier_wait(m->meet);
    int rc = nccl.split(m->c, color, m->n - m->rank, &child, NULL);
    WANT(m, rc == NCCL_OK); /* it has only begun, and does not say so */
    WANT(m, m->rank > 0 || !child);
    if (m->rank == 0)
        (void)pthread_barrier_wait(m->meet);
    WANT(m, comm_wait_birth(m->c, rc) == NCCL_OK);
    WANT(m, (!child) == (m->rank == 1));
    if (child) {
        rc = comm_wait(child, nccl.broadcast(&x, &x, 1, NCCL_I32, 0, child, &m->s));
        WANT(m, rc == NCCL_OK);
        stream_sync(&m->s);
        WANT(m, x == 1 << 2);
        WANT(m, nccl.destroy(child) == NCCL_OK);
    }
    WANT(m, nccl.destroy(m->c) == NCCL_OK);
}

static void a_split_has_the_members_of_a_color(void **state)
{
    (void)state;
    members_run(3, member_splits);
}

/* Member 1 goes; the others have a kernel that waits for it. */
static void member_shrinks(struct member *m)
{
    int32_t x = 1 << m->rank, gone[1] = {1};
    nccl_comm child = NULL;

    WANT(m, member_start(m) == NCCL_OK);
    (void)pthread_barrier_wait(m->meet);
    if (m->rank == 1) {
        WANT(m, nccl.abort(m->c) == NCCL_OK);
        return;
    }
    int rc = nccl.all_reduce(&x, &x, 1, NCCL_I32, NCCL_SUM, m->c, &m->s);
    WANT(m, comm_wait(m->c, rc) == NCCL_OK);
    (void)nccl.shrink(m->c, gone, 1, &child, NULL, 0);
}

static void revoked_and_shrunk(struct member *m)
{
    int32_t x = 1 << m->rank, gone[1] = {1};
    nccl_comm child = NULL;

    WANT(m, member_start(m) == NCCL_OK);
    (void)pthread_barrier_wait(m->meet);
    if (m->rank == 1) {
        WANT(m, nccl.abort(m->c) == NCCL_OK);
        return;
    }
    int rc = nccl.all_reduce(&x, &x, 1, NCCL_I32, NCCL_SUM, m->c, &m->s);
    WANT(m, comm_wait(m->c, rc) == NCCL_OK);
    WANT(m, comm_wait(m->c, nccl.revoke(m->c, 0)) == NCCL_OK);
    stream_sync(&m->s); /* the kernel is out */
    WANT(m, nccl.shrink(m->c, gone, 0, &child, NULL, 0) == NCCL_ARGUMENT);
    WANT(m,
         comm_wait_birth(m->c, nccl.shrink(m->c, gone, 1, &child, NULL, 0)) == NCCL_OK);
    WANT(m, nccl.destroy(m->c) == NCCL_OK);
    x = 1 << m->rank;
    rc = nccl.all_reduce(&x, &x, 1, NCCL_I32, NCCL_SUM, child, &m->s);
    WANT(m, comm_wait(child, rc) == NCCL_OK);
    stream_sync(&m->s);
    WANT(m, x == 5);
    WANT(m, nccl.destroy(child) == NCCL_OK);
}

static void survivors_revoke_and_shrink(void **state)
{
    (void)state;
    (void)setenv("HVD_FAKE_NCCL", "22809", 1);
    members_run(3, revoked_and_shrunk);
    run_dies(3, member_shrinks, "ncclCommShrink with outstanding operations");
}

/* --- faults --- */

static void abort_ends(struct member *m)
{
    uint64_t began = clock_now_ns();
    int32_t x = 1;

    WANT(m, member_start(m) == NCCL_OK);
    int rc = nccl.all_reduce(&x, &x, 1, NCCL_I32, NCCL_SUM, m->c, &m->s);
    WANT(m, comm_wait(m->c, rc) == NCCL_OK);
    (void)usleep(20000);
    WANT(m, x == 1);
    WANT(m, nccl.abort(m->c) == NCCL_OK);
    stream_sync(&m->s);
    WANT(m, clock_now_ns() - began < 10 * NS_PER_S);
}

static void abort_in_init(struct member *m)
{
    struct nccl_config config = config_of(false);
    int rc = nccl.init_config(&m->c, m->n, m->id, m->rank, &config);

    WANT(m, rc == NCCL_IN_PROGRESS);
    (void)usleep(20000);
    WANT(m, nccl.async_error(m->c, &rc) == NCCL_OK && rc == NCCL_IN_PROGRESS);
    (void)pthread_barrier_wait(m->meet); /* the others may be told of an abort */
    WANT(m, nccl.abort(m->c) == NCCL_OK);
}

static void abort_in_enqueue(struct member *m)
{
    int32_t x = 1;
    int rc;

    WANT(m, member_start(m) == NCCL_OK);
    rc = nccl.all_reduce(&x, &x, 1, NCCL_I32, NCCL_SUM, m->c, &m->s);
    WANT(m, rc == NCCL_IN_PROGRESS);
    if (m->rank)
        WANT(m, comm_wait(m->c, rc) == NCCL_OK);
    (void)usleep(20000);
    WANT(m, nccl.async_error(m->c, &rc) == NCCL_OK);
    WANT(m, rc == (m->rank ? NCCL_OK : NCCL_IN_PROGRESS));
    (void)pthread_barrier_wait(m->meet);
    WANT(m, nccl.abort(m->c) == NCCL_OK);
    stream_sync(&m->s);
}

static void an_abort_ends_what_hangs(void **state)
{
    (void)state;
    nccl.faults("nccl_hang=1");
    members_run(3, abort_ends);
    nccl.faults("init_hang=0");
    members_run(3, abort_in_init);
    nccl.faults("enqueue_hang=0@0");
    members_run(2, abort_in_enqueue);
}

static void async_error(struct member *m)
{
    int32_t x = 1;
    int rc;

    WANT(m, member_start(m) == NCCL_OK);
    for (int i = 0; i < 2; i++) {
        rc = nccl.all_reduce(&x, &x, 1, NCCL_I32, NCCL_SUM, m->c, &m->s);
        (void)comm_wait(m->c, rc); /* may see the second one's error already */
        if (i == 0)
            stream_sync(&m->s);
    }
    for (rc = 0; rc == NCCL_OK && m->rank == 1; (void)usleep(100))
        WANT(m, nccl.async_error(m->c, &rc) == NCCL_OK);
    WANT(m, rc == (m->rank == 1 ? NCCL_SYSTEM : NCCL_OK));
    WANT(m, m->rank != 1 || strstr(nccl.last_error(m->c), "injected"));
    WANT(m, nccl.abort(m->c) == NCCL_OK);
    stream_sync(&m->s);
    WANT(m, x == 2); /* the first was done */
}

/* Member 1 dies; the others hear of it only where the network tells. */
static void lost_peer(struct member *m)
{
    int32_t x = 1;
    int rc = 0;

    WANT(m, member_start(m) == NCCL_OK);
    (void)pthread_barrier_wait(m->meet);
    if (m->rank == 0) {
        rc = nccl.all_reduce(&x, &x, 1, NCCL_I32, NCCL_SUM, m->c, &m->s);
        (void)comm_wait(m->c, rc); /* may see it already */
        for (rc = 0; rc == NCCL_OK; (void)usleep(100))
            WANT(m, nccl.async_error(m->c, &rc) == NCCL_OK);
        WANT(m, rc == NCCL_REMOTE);
        WANT(m, strcmp(nccl.error_text(rc), "no error") != 0);
    }
    WANT(m, nccl.abort(m->c) == NCCL_OK);
    stream_sync(&m->s);
}

static void init_error(struct member *m)
{
    int rc = member_start(m);

    WANT(m, rc == (m->rank == 1 ? NCCL_CUDA : NCCL_OK));
    WANT(m, nccl.abort(m->c) == NCCL_OK);
}

/* The results as NVIDIA's library has them: tests/gpu/nccl_real.c. */
static void init_refused(struct member *m)
{
    m->c = NULL;
    WANT(m, member_start(m) == NCCL_CUDA && !m->c);
}

static void texts_are_those_of_the_version(void **state)
{
    (void)state;
    (void)setenv("HVD_FAKE_NCCL", "21304", 1);
    assert_string_equal(nccl.error_text(NCCL_IN_PROGRESS), "unknown result code");
    (void)setenv("HVD_FAKE_NCCL", "22705", 1);
    assert_string_equal(nccl.error_text(NCCL_IN_PROGRESS),
                        "NCCL operation in progress");
    assert_string_equal(nccl.error_text(NCCL_TIMEOUT), "unknown result code");
    (void)setenv("HVD_FAKE_NCCL", "23203", 1);
    assert_string_equal(nccl.error_text(NCCL_TIMEOUT), "timeout");
}

static void errors_are_told(void **state)
{
    (void)state;
    nccl.faults("async_error=1:2@1");
    members_run(2, async_error);
    nccl.faults("peer_death=error");
    members_run(2, lost_peer);
    nccl.faults("init_error=1:1");
    members_run(2, init_error);
    nccl.faults("init_refused=0:1");
    members_run(1, init_refused);
}

int main(void)
{
    if (load_nccl())
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(it_reduces_as_defined, test_setup),
        cmocka_unit_test_setup(it_moves_as_defined, test_setup),
        cmocka_unit_test_setup(what_would_hang_ends_the_test, test_setup),
        cmocka_unit_test_setup(what_is_forbidden_ends_the_test, test_setup),
        cmocka_unit_test_setup(configs_are_read_as_each_version_does, test_setup),
        cmocka_unit_test_setup(groups_are_in_progress_where_nccls_are, test_setup),
        cmocka_unit_test_setup(a_split_has_the_members_of_a_color, test_setup),
        cmocka_unit_test_setup(survivors_revoke_and_shrink, test_setup),
        cmocka_unit_test_setup(an_abort_ends_what_hangs, test_setup),
        cmocka_unit_test_setup(errors_are_told, test_setup),
        cmocka_unit_test_setup(texts_are_those_of_the_version, test_setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
