/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of a page that its rank is writing. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

#include "tests/unit/unit.h"

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/launch/stats_dir.h"

enum { READS = 20000 };

static char path[] = "/tmp/hvd-page-XXXXXX";
static struct stats_page *page; /* the mapped file, as in observe/stats.c */
static atomic_bool is_done;

static int make_page(void **state)
{
    struct stats_page p = {
        .magic = STATS_MAGIC, .version = STATS_VERSION, .n_words = STATS_N_WORDS};
    int fd = mkstemp(path);
    void *mapped;

    (void)state;
    if (fd < 0 || write(fd, &p, sizeof(p)) != (ssize_t)sizeof(p))
        return -1;
    mapped = mmap(NULL, sizeof(p), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    page = mapped;
    (void)close(fd);
    return mapped == MAP_FAILED ? -1 : 0;
}

static int remove_page(void **state)
{
    (void)state;
    (void)munmap(page, sizeof(*page));
    return unlink(path);
}

/* All fields say how often it was written. */
static struct stats_progress progress_no(uint64_t no)
{
    struct stats_progress p = {.step = (int64_t)no,
                               .samples = (int64_t)no,
                               .updated_wall_us = no,
                               .n_metrics = STATS_METRICS_MAX};

    for (size_t i = 0; i < STATS_METRICS_MAX; i++) {
        (void)snprintf(p.metrics[i].name, STATS_NAME_MAX, "%zu of %llu", i,
                       (unsigned long long)no);
        p.metrics[i].value = (double)no;
    }
    return p;
}

static void *write_on(void *arg)
{
    (void)arg;
    for (uint64_t no = 1; !atomic_load(&is_done); no++) {
        struct stats_progress p = progress_no(no);

        stats_page_put_progress(page, &p);
    }
    return NULL;
}

UNIT_TEST(a_copy_is_of_one_moment)
{
    pthread_t t;
    uint64_t n_whole = 0;

    assert_int_equal(pthread_create(&t, NULL, write_on, NULL), 0);
    for (int i = 0; i < READS; i++) {
        AUTOFREE struct stats_page *copy = stats_page_read(path);
        struct stats_progress p, want;

        assert_non_null(copy);
        stats_page_get_progress(copy, &p);
        want = progress_no(p.updated_wall_us);
        if (p.n_metrics == 0)
            continue; /* before the first write, or always written meanwhile */
        n_whole++;
        assert_true(p.step == want.step && p.samples == want.samples);
        for (size_t m = 0; m < STATS_METRICS_MAX; m++) {
            assert_string_equal(p.metrics[m].name, want.metrics[m].name);
            assert_true(p.metrics[m].value == want.metrics[m].value);
        }
    }
    atomic_store(&is_done, true);
    assert_int_equal(pthread_join(t, NULL), 0);
    assert_true(n_whole > READS / 10);
}

UNIT_TEST(a_rank_that_died_while_writing_has_numbers_but_no_metrics)
{
    struct stats_progress p = progress_no(9);
    AUTOFREE struct stats_page *copy = NULL;

    stats_page_put_progress(page, &p);
    page->progress_turn--;
    copy = stats_page_read(path);
    page->progress_turn++;
    assert_non_null(copy);
    stats_page_get_progress(copy, &p);
    assert_int_equal(p.n_metrics, 0);
    assert_int_equal(p.step, 9);
}

UNIT_TEST(a_launcher_in_a_slurm_step_does_not_use_the_folder_of_the_step)
{
    assert_string_equal(stats_dir_choose(NULL, "/own"), "/own");
    assert_string_equal(stats_dir_choose("", "/own"), "/own");
    assert_string_equal(stats_dir_choose("/users", "/own"), "/users");
    assert_string_equal(stats_dir_choose("/dev/shm/hvd_step.1.0.0.9", "/own"), "/own");
}

UNIT_MAIN(make_page, remove_page)
