/* SPDX-License-Identifier: Apache-2.0 */
/* The fake driver as the tests of this folder see it: loaded once, its own functions by
 * name. */
#ifndef TESTS_UNIT_GPU_FAKE_H
#define TESTS_UNIT_GPU_FAKE_H

#include <dlfcn.h>
#include <sys/wait.h>

#include "runtime/backend/nccl/cuda_dl.h"
#include "runtime/base/clock.h"
#include "tests/unit/unit.h"

static struct {
    struct cuda_api cu;
    int (*enqueue)(cu_stream s, int (*fn)(void *arg), const void *arg, size_t bytes);
    void (*set_faults)(const char *text);
    void (*setup)(const char *cuda, const char *gpus, const char *nopool);
    unsigned long (*calls)(void);
    unsigned (*n_blocks)(void);
    unsigned (*n_events)(void);
    unsigned (*n_streams)(void);
    unsigned long (*n_syncs)(void);
} fake;

static inline void *fake_symbol(const char *name)
{
    void *lib = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_NODELETE);
    void *p = lib ? dlsym(lib, name) : NULL;

    assert_non_null(p);
    return p;
}

/* Anew: version 12.4, one GPU, pools, no faults, nothing sticky. Texts: NULL or static.
 */
static inline void fake_begin_as(const char *cuda, const char *gpus, const char *nopool)
{
    struct err err = ERR_INIT;

    *(void **)&fake.enqueue = fake_symbol("hvd_fake_enqueue");
    *(void **)&fake.set_faults = fake_symbol("hvd_fake_set_faults");
    *(void **)&fake.setup = fake_symbol("hvd_fake_setup");
    *(void **)&fake.calls = fake_symbol("hvd_fake_calls");
    *(void **)&fake.n_blocks = fake_symbol("hvd_fake_n_blocks");
    *(void **)&fake.n_events = fake_symbol("hvd_fake_n_events");
    *(void **)&fake.n_streams = fake_symbol("hvd_fake_n_streams");
    *(void **)&fake.n_syncs = fake_symbol("hvd_fake_n_syncs");
    fake.set_faults("");
    fake.setup(cuda, gpus, nopool);
    if (cuda_load(CUDA_LIBRARY, &fake.cu, &err) < 0)
        fail_msg("%s", err.text);
}

static inline void fake_begin(void)
{
    fake_begin_as("12040", "1", NULL);
}

/* A gate in a stream: what is behind it waits until it is opened. */
struct gate {
    _Atomic int is_open;
};

static inline int gate_entry(void *arg)
{
    struct gate *g;

    memcpy(&g, arg, sizeof(g));
    while (!g->is_open)
        usleep(100);
    return 0;
}

static inline void gate_put(struct gate *g, cu_stream s)
{
    g->is_open = 0;
    assert_int_equal(fake.enqueue(s, gate_entry, &g, sizeof(g)), 0);
}

#define WAIT_UNTIL(what)                                                               \
    do {                                                                               \
        uint64_t end_ = clock_now_ns() + 20 * NS_PER_S;                                \
        while (!(what)) {                                                              \
            if (clock_now_ns() > end_)                                                 \
                fail_msg("line %d: never: %s", __LINE__, #what);                       \
            usleep(100);                                                               \
        }                                                                              \
    } while (0)

/* fn in a child process, because it is to have a process of its own; it returns its
 * exit status. cmocka's assertions do not work in it: CHILD_NEEDS. */
static inline int in_child(int (*fn)(const void *row), const void *row)
{
    int status = 0;

    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        (void)alarm(100);
        _exit(fn(row));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
/* A test whose body runs in a child. */
#define CHILD_TEST(f)                                                                  \
    static int f##_child(const void *no_row);                                          \
    UNIT_TEST(f)                                                                       \
    {                                                                                  \
        assert_int_equal(in_child(f##_child, NULL), 0);                                \
    }                                                                                  \
    static int f##_child(const void *no_row)
/* A child for each row of the array. */
#define ASSERT_CHILDREN(fn, rows)                                                      \
    do {                                                                               \
        for (size_t row_ = 0; row_ < sizeof(rows) / sizeof((rows)[0]); row_++)         \
            assert_int_equal(in_child(fn, &(rows)[row_]), 0);                          \
    } while (0)
#define CHILD_NEEDS(what)                                                              \
    do {                                                                               \
        if (!(what)) {                                                                 \
            (void)fprintf(stderr, "line %d: not: %s\n", __LINE__, #what);              \
            return 1;                                                                  \
        }                                                                              \
    } while (0)

#endif
