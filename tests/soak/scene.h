/* SPDX-License-Identifier: Apache-2.0 */
/* The base of soak.c's scenes: the two generators, tensors of whole numbers and their
 * expected results. Included by soak.c alone. */
#ifndef TESTS_SOAK_SCENE_H
#define TESTS_SOAK_SCENE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "hvd.h"

enum { MAX_RANKS = 16, MAX_TENSORS = 40, MAX_ELEMS = 3000 };
enum { OFTEN = 65, GROWTH_MAX_KB = 4096, EARLY_MAX_KB = 16384 };

static int rank, size;
static uint64_t common, own; /* states of the two generators */
static uint64_t n_done, n_scenes;
static const char *scene_name = "start";

__attribute__((format(printf, 1, 2), noreturn)) static void soak_die(const char *fmt,
                                                                     ...)
{
    va_list ap;

    (void)fprintf(stderr, "soak: rank %d, scene %llu (%s): ", rank,
                  (unsigned long long)n_scenes, scene_name);
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap);
    va_end(ap);
    (void)fputc('\n', stderr);
    exit(1);
}

static void status_ok(int r, const char *what)
{
    if (r < 0)
        soak_die("%s: %s", what, hvd_last_error());
}

static uint32_t random_draw(uint64_t *state, uint32_t n)
{
    *state ^= *state << 13; /* xorshift64 */
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 33) % n;
}
static uint32_t draw_equal(uint32_t n) /* equal on all ranks */
{
    return random_draw(&common, n);
}
static uint32_t draw_own(uint32_t n)
{
    return random_draw(&own, n);
}

static void pause_sometimes(void)
{
    if (draw_own(8) == 0) {
        struct timespec t = {.tv_nsec = (long)draw_own(2000000)};

        (void)nanosleep(&t, NULL); /* a late rank: the purpose of the soak */
    }
}

/* --- a tensor and its expected result --- */

/* Small whole numbers: sums are exact in float32. */
static float rank_value(int r, uint32_t salt, int i)
{
    return (float)((uint32_t)(r * 31 + i * 7) * (salt | 1) % 17);
}

static float sum_of(const int *ranks, int n, uint32_t salt, int i)
{
    float s = 0;

    for (int k = 0; k < n; k++)
        s += rank_value(ranks[k], salt, i);
    return s;
}

struct tensor {
    char name[48];
    float v[MAX_ELEMS], out[MAX_ELEMS];
    int64_t shape[2];
    uint32_t salt;
    hvd_handle h;
};
static struct tensor tensors[MAX_TENSORS];

static struct hvd_tensor tensor_describe(struct tensor *t, int ndim)
{
    return (struct hvd_tensor){.size_bytes = sizeof(struct hvd_tensor),
                               .name = t->name,
                               .data = t->v,
                               .output = t->out,
                               .dtype = HVD_FLOAT32,
                               .ndim = ndim,
                               .shape = t->shape,
                               .device = -1};
}

static void tensor_fill(struct tensor *t, int n)
{
    for (int i = 0; i < n; i++)
        t->v[i] = rank_value(rank, t->salt, i);
}

static void wait_for(struct tensor *t)
{
    status_ok(hvd_wait(t->h, -1), t->name);
    n_done++;
}

static void done_with(struct tensor *t)
{
    status_ok(hvd_release(t->h), t->name);
}

static void tensor_expect(const struct tensor *t, const float *got, int i, float want)
{
    if (got[i] != want)
        soak_die("%s: element %d is %g, not %g", t->name, i, (double)got[i],
                 (double)want);
}

static int everybody[MAX_RANKS];

#endif
