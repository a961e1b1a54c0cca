/* SPDX-License-Identifier: Apache-2.0 */
/* Points of a script of calls that runs on the real libraries and on the fakes: each
 * line holds the answer of the call, so two runs can be compared line by line. */
#ifndef TESTS_GPU_TAP_CONFORM_H
#define TESTS_GPU_TAP_CONFORM_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/backend/nccl/cuda_dl.h"
#include "runtime/base/clock.h"
#include "tests/gpu/tap/point.h"

static struct cuda_api cu;

/* The call answers `want`. */
#define ANSWERS(want, what, call)                                                      \
    do {                                                                               \
        int got_ = (call), want_ = (want);                                             \
        tap_point(got_ == want_, "%s: %d%s", what, got_,                               \
                  got_ == want_ ? "" : ", which is not what was expected");            \
    } while (0)

/* At once: libraries that tidy up would wait for a kernel that hangs. */
_Noreturn static inline void end_here(int code)
{
    (void)fflush(stdout);
    _exit(code);
}

/* What the script itself needs: nothing else can be said if it fails. */
#define NEEDS(call)                                                                    \
    do {                                                                               \
        int got_ = (call);                                                             \
        if (got_ != 0) {                                                               \
            (void)printf("Bail out! line %d: %s: %d\n", __LINE__, #call, got_);        \
            end_here(1);                                                               \
        }                                                                              \
    } while (0)

/* Asked until it is done, for 20 s; the last answer. */
static inline int event_end(cu_event e)
{
    uint64_t end = clock_now_ns() + 20 * NS_PER_S;
    int r;
    while ((r = cu.event_query(e)) == CU_NOT_READY && clock_now_ns() < end)
        (void)usleep(50);
    return r;
}

static inline int stream_end(cu_stream s)
{
    uint64_t end = clock_now_ns() + 20 * NS_PER_S;
    int r;
    while ((r = cu.stream_query(s)) == CU_NOT_READY && clock_now_ns() < end)
        (void)usleep(50);
    return r;
}

static inline void open_driver(void)
{
    struct err err = ERR_INIT;

    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (cuda_load(CUDA_LIBRARY, &cu, &err) != 0) {
        (void)printf("Bail out! %s\n", err.text);
        end_here(1);
    }
}

static inline int end_points(void)
{
    (void)printf("1..%d\n", n_points);
    end_here(n_failed > 0);
}

#endif
