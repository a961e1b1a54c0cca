/* SPDX-License-Identifier: Apache-2.0 */
/* What the fake NCCL itself must detect or keep, as NCCL's sources have it: calls of one
 * group that race for memory, and errors that stay. Communicators of one member; each
 * case has a process of its own. */
#include <sys/mman.h>

#include "runtime/backend/nccl/nccl_dl.h"
#include "tests/unit/gpu_fake.h"

enum { N = 64, SIZE = N * sizeof(float) };

static struct nccl_api nccl;
static cu_stream s;
static cu_ptr at; /* of 8 pieces of N floats */

static void *ptr_of(int floats)
{
    return (void *)(uintptr_t)(at + (cu_ptr)floats * sizeof(float));
}

static nccl_comm comm_start(bool blocks)
{
    struct nccl_config config;
    struct nccl_id id;
    nccl_comm c = NULL;
    int r, n;

    if (nccl.unique_id(&id) != NCCL_OK)
        return NULL;
    nccl_config_init(&config, nccl.version, "fake");
    config.blocking = blocks;
    r = nccl.has_nonblocking ? nccl.init_config(&c, 1, id, 0, &config)
                             : nccl.init(&c, 1, id, 0);
    while (r == NCCL_IN_PROGRESS)
        (void)nccl.async_error(c, &r);
    /* completes it, as comm.c does */
    if (nccl.version < NCCL_JOB_LINKED)
        r = r ? r : nccl.group_start() || nccl.group_end();
    return !r && nccl.count(c, &n) == NCCL_OK ? c : NULL;
}

static int open_all(const char *version, const char *faults)
{
    struct device_config config = {0};
    struct err err = ERR_INIT;
    cu_ctx ctx = NULL;

    (void)setenv("HVD_FAKE_NCCL", version, 1);
    (void)setenv("HVD_FAKE_FAULTS", faults, 1);
    CHILD_NEEDS(cuda_load(CUDA_LIBRARY, &fake.cu, &err) == 0);
    CHILD_NEEDS(fake.cu.init(0) == CU_OK);
    CHILD_NEEDS(fake.cu.ctx_retain(&ctx, 0) == CU_OK);
    CHILD_NEEDS(fake.cu.ctx_push(ctx) == CU_OK);
    CHILD_NEEDS(fake.cu.stream_new(&s, CU_STREAM_NON_BLOCKING, 0) == CU_OK);
    CHILD_NEEDS(fake.cu.mem_alloc(&at, 8 * SIZE) == CU_OK);
    CHILD_NEEDS(nccl_load(&config, &nccl, &err) == 0);
    return 0;
}

/* --- the memory of a group --- */

enum call { NONE, SUM, GATHER, SCATTER, SEND, RECV };

static const struct race {
    struct {
        enum call call;
        int in, out; /* floats from `at` */
    } calls[2];
    const char *says; /* NULL: the group is right */
} races[] = {
    {{{SUM, 0, N}, {SUM, 2 * N, 3 * N}}, NULL},
    {{{SUM, 0, N}, {SUM, 0, 2 * N}}, NULL}, /* both read it */
    {{{SUM, 0, 0}, {SUM, N, N}}, NULL},
    {{{SUM, 0, N}, {SUM, 0, 0}}, "writes what its AllReduce"},
    {{{SUM, 0, 0}, {SUM, 0, N}}, "writes what its AllReduce"},
    {{{SUM, 0, N}, {SUM, 2 * N, N}}, "root 0 writes\n"}, /* both write it */
    {{{SUM, 0, N}, {SUM, 2 * N, 0}}, "root 0 reads\n"},
    {{{SUM, 0, 2 * N}, {SUM, 4 * N, N - 1}}, "root 0 reads\n"}, /* by one */
    {{{SUM, 0, 2 * N}, {SUM, 4 * N, N}}, NULL},
    {{{SUM, 0, 1}, {NONE, 0, 0}}, "it is not in place"},
    {{{GATHER, 0, 0}, {SCATTER, N, N}}, NULL},
    {{{GATHER, 1, 0}, {NONE, 0, 0}}, "it is not in place"},
    {{{SEND, 0, 0}, {RECV, 0, N}}, NULL},
    {{{SEND, 0, 0}, {RECV, 0, N / 2}}, "root 0 reads\n"},
};

static int call_one(enum call call, int in, int out, nccl_comm c)
{
    void *from = ptr_of(in), *to = ptr_of(out);

    switch (call) {
    case NONE:
        break;
    case SUM:
        return nccl.all_reduce(from, to, N, NCCL_F32, NCCL_SUM, c, s);
    case GATHER:
        return nccl.all_gather(from, to, N, NCCL_F32, c, s);
    case SCATTER:
        return nccl.reduce_scatter(from, to, N, NCCL_F32, NCCL_SUM, c, s);
    case SEND:
        return nccl.send(from, N, NCCL_F32, 0, c, s);
    case RECV:
        return nccl.recv(to, N, NCCL_F32, 0, c, s);
    }
    return NCCL_OK;
}

static int said; /* a file with what the child says */

/* The call has ended; its result, or that of a failed query. */
static int call_end(nccl_comm c, int r)
{
    while (r == NCCL_IN_PROGRESS) {
        const int queried = nccl.async_error(c, &r);
        if (queried != NCCL_OK)
            return queried;
    }
    return r;
}

/* Two communicators, in a group that has begun. */
static int pair_begin(nccl_comm c[2])
{
    CHILD_NEEDS(open_all("22705", "") == 0);
    for (int i = 0; i < 2; i++)
        CHILD_NEEDS((c[i] = comm_start(false)));
    return nccl.group_start();
}

static int run_race(const void *row)
{
    const struct race *x = row;

    (void)dup2(said, 2);
    CHILD_NEEDS(open_all("22705", "") == 0);
    nccl_comm c = comm_start(false);
    CHILD_NEEDS(c);
    CHILD_NEEDS(nccl.group_start() == NCCL_OK);
    for (int i = 0; i < 2; i++)
        CHILD_NEEDS(call_one(x->calls[i].call, x->calls[i].in, x->calls[i].out, c)
                    == NCCL_OK);
    CHILD_NEEDS(call_end(c, nccl.group_end()) == NCCL_OK);
    return nccl.abort(c);
}

UNIT_TEST(calls_of_a_group_that_race_for_memory_end_the_test)
{
    for (size_t i = 0; i < sizeof(races) / sizeof(races[0]); i++) {
        char text[2000] = "";

        said = memfd_create("said", MFD_CLOEXEC);
        assert_true(said >= 0);
        int status = in_child(run_race, &races[i]);
        assert_true(pread(said, text, sizeof(text) - 1, 0) >= 0);
        (void)close(said);
        if (status != (races[i].says ? 1000 + SIGABRT : 0)
            || (races[i].says && !strstr(text, races[i].says)))
            fail_msg("row %zu: status %d: %s", i, status, text);
    }
}

/* Two communicators may race: NCCL's guide leaves their order to the caller. */
CHILD_TEST(groups_of_two_communicators_are_looked_at_apart)
{
    nccl_comm c[2];
    int r;

    CHILD_NEEDS(pair_begin(c) == NCCL_OK);
    for (int i = 0; i < 2; i++)
        CHILD_NEEDS(call_one(SUM, 0, i ? 0 : N, c[i]) == NCCL_OK);
    r = nccl.group_end();
    CHILD_NEEDS(r == NCCL_IN_PROGRESS);
    for (int i = 0; i < 2; i++)
        CHILD_NEEDS(call_end(c[i], r) == NCCL_OK);
    return nccl.abort(c[0]) || nccl.abort(c[1]);
}

/* --- errors that stay --- */

static const struct keeping {
    const char *version, *faults;
    bool blocks;
    int kept;
} keepings[] = {
    {"21304", "", true, NCCL_OK},
    {"21403", "", false, NCCL_ARGUMENT},
    {"22005", "", false, NCCL_ARGUMENT},
    {"22705", "", false, NCCL_ARGUMENT},
    {"23004", "", false, NCCL_ARGUMENT},
    {"22705", "", true, NCCL_OK},
    {"22705", "nccl_forgets_error=1", false, NCCL_OK},
};

static int keeps_error(const void *row)
{
    const struct keeping *k = row;
    int r, n;

    CHILD_NEEDS(open_all(k->version, k->faults) == 0);
    nccl_comm c = comm_start(k->blocks);
    CHILD_NEEDS(c);
    r = nccl.broadcast(ptr_of(0), ptr_of(N), N, NCCL_F32, 7, c, s);
    CHILD_NEEDS(r == NCCL_ARGUMENT);
    CHILD_NEEDS(nccl.async_error(c, &r) == NCCL_OK && r == k->kept);
    CHILD_NEEDS(call_end(c, call_one(SUM, 0, N, c)) == k->kept);
    CHILD_NEEDS(nccl.count(c, &n) == k->kept);
    if (k->kept && nccl.has_nonblocking)
        CHILD_NEEDS(nccl.finalize(c) == k->kept);
    if (k->kept && nccl.version < 22403) /* later ones leave a group begun */
        CHILD_NEEDS(nccl.destroy(c) == k->kept);
    CHILD_NEEDS(nccl.abort(c) == NCCL_OK);
    CHILD_NEEDS((c = comm_start(k->blocks)));
    CHILD_NEEDS(call_end(c, call_one(SUM, 0, N, c)) == NCCL_OK);
    return nccl.abort(c);
}

UNIT_TEST(an_error_stays_where_a_communicator_does_not_block)
{
    ASSERT_CHILDREN(keeps_error, keepings);
}

/* All calls of the group are dropped, and its other communicators have the error. */
CHILD_TEST(an_error_in_a_group_is_that_of_all_of_it)
{
    char *(*log_of)(int rank);
    nccl_comm c[2];
    int r;

    CHILD_NEEDS(pair_begin(c) == NCCL_OK);
    CHILD_NEEDS(call_one(SUM, 0, N, c[0]) == NCCL_OK);
    r = nccl.broadcast(ptr_of(0), ptr_of(N), N, NCCL_F32, 7, c[1], s);
    CHILD_NEEDS(r == NCCL_ARGUMENT);
    CHILD_NEEDS(nccl.group_end() == NCCL_ARGUMENT);
    for (int i = 0; i < 2; i++)
        CHILD_NEEDS(nccl.async_error(c[i], &r) == NCCL_OK && r == NCCL_ARGUMENT);
    *(void **)&log_of =
        dlsym(dlopen(nccl.path, RTLD_NOW | RTLD_NOLOAD), "fake_nccl_log");
    CHILD_NEEDS(log_of && log_of(0)[0] == '\0');
    CHILD_NEEDS(nccl.abort(c[0]) == NCCL_OK && nccl.abort(c[1]) == NCCL_OK);
    /* the next group is not concerned */
    CHILD_NEEDS((c[0] = comm_start(false)));
    CHILD_NEEDS(call_end(c[0], call_one(SUM, 0, N, c[0])) == NCCL_OK);
    return nccl.abort(c[0]);
}

UNIT_MAIN(NULL, NULL)
