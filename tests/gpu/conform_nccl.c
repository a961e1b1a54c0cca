/* SPDX-License-Identifier: Apache-2.0 */
/* conform_nccl RANK SIZE FOLDER: one script of NCCL calls, with the answers, states
 * and data that the backend relies on: on a GPU it checks NCCL, on the fake it checks
 * the fake. Ranks are processes that share device 0; unique ids are passed in files in
 * FOLDER, where they also meet. Communicators are non-blocking where NCCL supports
 * that.
 *
 * Each rank prints its own points. A call that does not return is ended by the time
 * limit of our caller. RM_SABOTAGE=one_buffer makes the mistake that NCCL runs as a
 * race and the fake detects. */
#include "tests/gpu/tap/conform.h"

#include <limits.h>
#include <math.h>

#include "runtime/backend/nccl/nccl_dl.h"

enum { N = 3000 };

static struct nccl_api nccl;
static int me, size;
static const char *folder;
static cu_stream s;
static cu_ptr in, out, own; /* own: of calls in place */
static uint8_t host[4 * N * 8], back[4 * N * 8];

/* --- helpers --- */

/* As comm.c does: polls until it is finished, and completes it. */
static int comm_wait(nccl_comm c, int r)
{
    uint64_t end = clock_now_ns() + 40 * NS_PER_S;
    bool was_begun = r == NCCL_IN_PROGRESS;
    int n;

    while (r == NCCL_IN_PROGRESS && clock_now_ns() < end) {
        (void)usleep(50);
        NEEDS(nccl.async_error(c, &r));
    }
    if (was_begun && r == NCCL_OK && nccl.version < NCCL_JOB_LINKED) {
        NEEDS(nccl.group_start());
        r = nccl.group_end();
    } else if (was_begun && r == NCCL_OK) {
        r = nccl.count(c, &n);
    }
    return r;
}

/* The id of communicator `number`; rank 0 makes it. */
static struct nccl_id id_of(int number)
{
    char path[512], made[520];
    struct nccl_id id = {{0}};
    FILE *f = NULL;

    (void)snprintf(path, sizeof(path), "%s/id.%d", folder, number);
    (void)snprintf(made, sizeof(made), "%s.new", path);
    if (me == 0) {
        NEEDS(nccl.unique_id(&id));
        f = fopen(made, "w");
        NEEDS(!f || fwrite(&id, sizeof(id), 1, f) != 1 || fclose(f) != 0);
        NEEDS(rename(made, path));
        return id;
    }
    for (int i = 0; i < 400000 && !(f = fopen(path, "r")); i++)
        (void)usleep(100);
    NEEDS(!f || fread(&id, sizeof(id), 1, f) != 1 || fclose(f) != 0);
    return id;
}

/* Waits until all ranks are here. Before an abort, which ends also what other ranks
 * have still to receive of an operation that is over on this one. */
static void ranks_meet(const char *where)
{
    const uint64_t end = clock_now_ns() + 40 * NS_PER_S;
    char path[600];

    (void)snprintf(path, sizeof(path), "%s/%s.%d", folder, where, me);
    FILE *f = fopen(path, "w");
    NEEDS(!f || fclose(f) != 0);
    for (int i = 0; i < size; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s.%d", folder, where, i);
        while (access(path, F_OK) != 0 && clock_now_ns() < end)
            (void)usleep(100);
        NEEDS(access(path, F_OK));
    }
}

static nccl_comm comm_start(int number)
{
    struct nccl_id id = id_of(number);
    struct nccl_config config;
    nccl_comm c = NULL;
    int rc;

    if (!nccl.has_nonblocking) {
        NEEDS(nccl.init(&c, size, id, me));
        return c;
    }
    nccl_config_init(&config, nccl.version, "conform");
    rc = nccl.init_config(&c, size, id, me, &config);
    tap_point(rc == NCCL_OK || rc == NCCL_IN_PROGRESS,
              "a start is in progress, or done");
    tap_point(c != NULL, "its communicator is there at once");
    rc = comm_wait(c, rc);
    tap_point(rc == NCCL_OK, "it comes to its end: %d", rc);
    if (rc != NCCL_OK) {
        (void)printf("Bail out! %s\n",
                     nccl.last_error ? nccl.last_error(c) : "no start");
        end_here(1);
    }
    return c;
}

static void copy_up(const void *p, size_t bytes)
{
    NEEDS(cu.set_d8(out, 0xee, sizeof(back), s));
    NEEDS(cu.copy_up(in, p, bytes, s));
}

static void copy_down(size_t bytes)
{
    NEEDS(cu.copy_down(back, out, bytes, s));
    NEEDS(stream_end(s));
}

static float value_of(int rank, int i)
{
    return (float)((rank + 1) * (i % 37));
}

static void inputs_fill(void)
{
    for (int i = 0; i < N; i++)
        ((float *)host)[i] = value_of(me, i);
    copy_up(host, N * sizeof(float));
}

static void *ptr_at(cu_ptr p)
{
    return (void *)(uintptr_t)p;
}

/* NOLINTBEGIN(bugprone-macro-parentheses): i is a name. All n are what the test says.
 */
#define ALL(n, i, is_right, what)                                                      \
    do {                                                                               \
        int wrong_ = 0;                                                                \
        for (int i = 0; i < (n); i++)                                                  \
            wrong_ += !(is_right);                                                     \
        tap_point(wrong_ == 0, "%s: %d of %d are wrong", what, wrong_, n);             \
    } while (0)
/* NOLINTEND(bugprone-macro-parentheses) */
#define F ((float *)back)

static float total_of(int i)
{
    return value_of(size - 1, i) * (float)(size + 1) / 2;
}

/* The call is made, and what it begins is done. */
#define ENDS(what, call) ANSWERS(NCCL_OK, what, comm_wait(c, call))

static int call_all_reduce(nccl_comm c, size_t n, enum nccl_op op)
{
    return nccl.all_reduce(ptr_at(in), ptr_at(out), n, NCCL_F32, op, c, s);
}

static void check_sum(nccl_comm c, const char *what)
{
    inputs_fill();
    ENDS(what, call_all_reduce(c, N, NCCL_SUM));
    copy_down(N * sizeof(float));
    ALL(N, i, F[i] == total_of(i), "its sum");
}

/* --- the script --- */

/* NCCL runs the calls of a group together: none may write what another one uses. */
static void check_group(nccl_comm c)
{
    const char *sabotage = getenv("RM_SABOTAGE");
    const bool is_one = sabotage && strcmp(sabotage, "one_buffer") == 0;
    const cu_ptr second = is_one ? in : own;

    inputs_fill();
    NEEDS(cu.copy(own, in, N * sizeof(float), s));
    NEEDS(nccl.group_start());
    int r = call_all_reduce(c, N, NCCL_SUM);
    tap_point(r == NCCL_OK, "a call in a group: %d", r);
    r = nccl.all_reduce(ptr_at(second), ptr_at(second), N, NCCL_F32, NCCL_MAX, c, s);
    tap_point(r == NCCL_OK, "another one, in place: %d", r);
    r = nccl.group_end();
    tap_point(r == NCCL_OK || (r == NCCL_IN_PROGRESS && nccl.has_nonblocking),
              "the group is over or in progress");
    ENDS("the group's end", r);
    copy_down(N * sizeof(float));
    ALL(N, i, F[i] == total_of(i), "ncclAllReduce, sum");
    NEEDS(cu.copy(out, second, N * sizeof(float), s));
    copy_down(N * sizeof(float));
    ALL(N, i, F[i] == value_of(size - 1, i), "ncclAllReduce, max, in place");
}

static void check_reduces(nccl_comm c)
{
    inputs_fill();
    ENDS("ncclAllReduce, average", call_all_reduce(c, N, NCCL_AVG));
    copy_down(N * sizeof(float));
    ALL(N, i, fabsf(F[i] - total_of(i) / (float)size) <= 1e-5f * total_of(i),
        "the average");
    inputs_fill();
    ENDS("ncclReduce",
         nccl.reduce(ptr_at(in), ptr_at(out), N, NCCL_F32, NCCL_SUM, size - 1, c, s));
    copy_down(N * sizeof(float));
    if (me == size - 1)
        ALL(N, i, F[i] == total_of(i), "ncclReduce");
    inputs_fill();
    ENDS("ncclReduceScatter",
         nccl.reduce_scatter(ptr_at(in), ptr_at(out), (size_t)(N / size), NCCL_F32,
                             NCCL_SUM, c, s));
    copy_down(N * sizeof(float));
    ALL(N / size, i, F[i] == total_of(i + me * (N / size)), "ncclReduceScatter");
    ENDS("nothing to reduce", call_all_reduce(c, 0, NCCL_SUM));
}

static void check_moves(nccl_comm c)
{
    const int next = (me + 1) % size, last = (me + size - 1) % size;

    inputs_fill();
    ENDS("ncclBroadcast",
         nccl.broadcast(ptr_at(in), ptr_at(out), N, NCCL_F32, size - 1, c, s));
    copy_down(N * sizeof(float));
    ALL(N, i, F[i] == value_of(size - 1, i), "ncclBroadcast");
    inputs_fill();
    ENDS("ncclAllGather",
         nccl.all_gather(ptr_at(in), ptr_at(out), N / 2, NCCL_F32, c, s));
    copy_down((size_t)size * (N / 2) * sizeof(float));
    ALL(size * (N / 2), i, F[i] == value_of(i / (N / 2), i % (N / 2)), "ncclAllGather");
    /* in a circle and to oneself, all at once */
    inputs_fill();
    NEEDS(nccl.group_start());
    NEEDS(nccl.send(ptr_at(in), N, NCCL_F32, next, c, s));
    NEEDS(nccl.recv(ptr_at(out), N, NCCL_F32, last, c, s));
    NEEDS(nccl.send(ptr_at(in), 10, NCCL_F32, me, c, s));
    NEEDS(nccl.recv(ptr_at(out + N * 4), 10, NCCL_F32, me, c, s));
    ENDS("ncclSend and ncclRecv in a circle", nccl.group_end());
    copy_down((N + 10) * sizeof(float));
    ALL(N, i, F[i] == value_of(last, i), "what came round");
    ALL(10, i, F[N + i] == value_of(me, i), "what came from ourselves");
}

/* NCCL's minimum of a NaN and a number is the number. */
static void check_nans(nccl_comm c)
{
    for (int i = 0; i < 4; i++)
        ((float *)host)[i] = i == me ? NAN : (float)me;
    copy_up(host, 16);
    ENDS("ncclAllReduce, minimum", call_all_reduce(c, 4, NCCL_MIN));
    copy_down(16);
    tap_point(F[0] == 1 && F[1] == 0 && F[3] == 0,
              "minima with a NaN of one rank: %g %g %g", (double)F[0], (double)F[1],
              (double)F[3]);
}

static void check_graphs(nccl_comm c)
{
    cu_graph_exec exec = NULL;
    cu_graph g = NULL;

    if (!cu.graph_make)
        return;
    inputs_fill();
    NEEDS(stream_end(s));
    NEEDS(cu.capture_begin(s, CU_CAPTURE_RELAXED));
    ENDS("ncclAllReduce into a capture", call_all_reduce(c, N, NCCL_SUM));
    NEEDS(cu.capture_end(s, &g));
    NEEDS(cu.graph_make(&exec, g, 0));
    NEEDS(cu.graph_free(g));
    for (int k = 0; k < 2; k++) {
        inputs_fill();
        NEEDS(cu.graph_launch(exec, s));
        copy_down(N * sizeof(float));
        ALL(N, i, F[i] == total_of(i), "the graph's sum");
    }
    NEEDS(cu.graph_exec_free(exec));
}

static void check_registered(nccl_comm c)
{
    void *p = NULL, *handle = NULL;

    if (!nccl.has_register)
        return;
    ANSWERS(NCCL_OK, "ncclMemAlloc", nccl.mem_alloc(&p, 1 << 20));
    ENDS("ncclCommRegister", nccl.register_(c, p, 1 << 20, &handle));
    inputs_fill();
    NEEDS(cu.copy((uintptr_t)p, in, N * 4, s));
    ENDS("ncclAllReduce of it", nccl.all_reduce(p, p, N, NCCL_F32, NCCL_SUM, c, s));
    NEEDS(cu.copy(out, (uintptr_t)p, N * 4, s));
    copy_down(N * sizeof(float));
    ALL(N, i, F[i] == total_of(i), "its sum");
    ENDS("ncclCommDeregister", nccl.deregister(c, handle));
    ANSWERS(NCCL_OK, "ncclMemFree", nccl.mem_free(p));
}

static void check_splits(nccl_comm c)
{
    struct nccl_config config;
    nccl_comm child = NULL;

    if (!nccl.has_split)
        return;
    /* the last rank stays out; the other ranks are in reverse order */
    bool is_in = me < size - 1;
    nccl_config_init(&config, nccl.version, "child");
    int r = nccl.split(c, is_in ? 5 : NCCL_NOCOLOR, size - me, &child, &config);
    ANSWERS(NCCL_OK, "ncclCommSplit, which says so when it has begun", r);
    ENDS("its end", NCCL_IN_PROGRESS);
    tap_point((child != NULL) == is_in, "only a rank with a color has a child");
    if (!child)
        return;
    ANSWERS(NCCL_OK, "the child's start", comm_wait(child, NCCL_IN_PROGRESS));
    inputs_fill();
    /* rank 0 of the child is the last of its members */
    ANSWERS(NCCL_OK, "ncclBroadcast in the child",
            comm_wait(child, nccl.broadcast(ptr_at(in), ptr_at(out), N, NCCL_F32, 0,
                                            child, s)));
    copy_down(N * sizeof(float));
    ALL(N, i, F[i] == value_of(size - 2, i),
        "the order of its members is that of keys");
    r = nccl.finalize(child);
    ANSWERS(NCCL_OK, "ncclCommFinalize of the child", comm_wait(child, r));
    ANSWERS(NCCL_OK, "ncclCommDestroy of the child", nccl.destroy(child));
}

static void check_ends(nccl_comm c)
{
    if (nccl.has_nonblocking)
        ENDS("ncclCommFinalize", nccl.finalize(c));
    ANSWERS(NCCL_OK, "ncclCommDestroy", nccl.destroy(c));
}

static int call_unknown_type(nccl_comm c)
{
    return nccl.all_reduce(ptr_at(in), ptr_at(out), 8, (enum nccl_dtype)99, NCCL_SUM, c,
                           s);
}

static int call_no_root(nccl_comm c)
{
    return nccl.broadcast(ptr_at(in), ptr_at(out), 8, NCCL_F32, size, c, s);
}

/* A wrong call, on a communicator of its own. Where that does not block, its error
 * stays: later calls return it, and only an abort is left. */
static void check_error(int number, const char *what, int (*call)(nccl_comm c))
{
    const int kept = nccl.has_nonblocking ? NCCL_ARGUMENT : NCCL_OK;
    nccl_comm c = comm_start(number);
    char where[16];
    int r = NCCL_OK, n;

    check_sum(c, "an operation before the error");
    ANSWERS(NCCL_ARGUMENT, what, call(c));
    NEEDS(nccl.async_error(c, &r));
    tap_point(r == kept, "the error stays: %d", r);
    ANSWERS(kept, "the next operation returns it", call_all_reduce(c, N, NCCL_SUM));
    ANSWERS(kept, "ncclCommCount returns it", nccl.count(c, &n));
    ANSWERS(CU_OK, "the stream has no error", stream_end(s));
    (void)snprintf(where, sizeof(where), "erred.%d", number);
    ranks_meet(where);
    ANSWERS(NCCL_OK, "ncclCommAbort after an error", nccl.abort(c));
}

static void check_errors(void)
{
    check_error(4, "an unknown type", call_unknown_type);
    check_error(5, "a root that is not there", call_no_root);
    nccl_comm c = comm_start(6);
    check_sum(c, "a new communicator reduces after an error");
    check_ends(c);
}

/* A kernel that waits for a rank which does not come leaves when it is aborted. */
static void check_aborts(void)
{
    nccl_comm c = comm_start(2);
    uint64_t began;

    check_sum(c, "an operation of all ranks");
    ranks_meet("summed");
    if (me == 0) {
        int r = call_all_reduce(c, N, NCCL_SUM);
        tap_point(comm_wait(c, r) == NCCL_OK, "an operation of one rank is launched");
        (void)usleep(200000);
        tap_point(cu.stream_query(s) == CU_NOT_READY, "its kernel waits");
    }
    ranks_meet("waits"); /* else rank 0 would see aborts of other ranks as an error */
    began = clock_now_ns();
    ANSWERS(NCCL_OK, "ncclCommAbort", nccl.abort(c));
    ANSWERS(CU_OK, "the stream after it", stream_end(s));
    tap_point(clock_now_ns() - began < 5 * NS_PER_S, "it was done within 5 s");
    c = comm_start(3);
    check_sum(c, "a new communicator reduces");
    check_ends(c);
}

int main(int argc, char **argv)
{
    const char *path = getenv("HVD_NCCL_LIB");
    struct device_config config = {.nccl_lib = path ? path : ""};
    struct err err = ERR_INIT;
    cu_ctx ctx = NULL;

    if (argc != 4)
        return 2;
    me = atoi(argv[1]);
    size = atoi(argv[2]);
    folder = argv[3];
    open_driver();
    NEEDS(cu.init(0));
    NEEDS(cu.ctx_retain(&ctx, 0));
    NEEDS(cu.ctx_push(ctx));
    NEEDS(cu.stream_new(&s, CU_STREAM_NON_BLOCKING, 0));
    NEEDS(cu.mem_alloc(&in, sizeof(host)));
    NEEDS(cu.mem_alloc(&out, sizeof(back)));
    NEEDS(cu.mem_alloc(&own, sizeof(host)));
    if (nccl_load(&config, &nccl, &err) != 0) {
        (void)printf("Bail out! %s\n", err.text);
        return 1;
    }
    (void)printf("# NCCL %d\n", nccl.version);
    nccl_comm c = comm_start(1);
    check_group(c);
    check_reduces(c);
    check_moves(c);
    check_nans(c);
    check_graphs(c);
    check_registered(c);
    check_splits(c);
    check_ends(c);
    check_aborts();
    check_errors();
    return end_points();
}
