/* SPDX-License-Identifier: Apache-2.0 */
/* The messages are those of runtime/backend/nccl, which end a world and so are in the
 * last lines of all of its ranks, after whatever Python puts before them; and those of
 * frameworks, whose own kernels fail too. Of CUDA's errors only those count that a
 * running kernel or the GPU causes: "no device" and "not initialized" are in the output
 * of every TensorFlow on a host without GPUs.
 *
 * Called by runtime/launch, for the output of a rank and for the reasons derived from
 * it, and by the operator, for the last lines of a pod in which no process of ours was
 * left to report. */
#include "runtime/contract/gpu_cause.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

#define NCCL_MARK    "NCCL asynchronous error on rank "
#define MAX_SENTENCE 200 /* bytes of an error message that are searched */
#define MAX_BEFORE   170 /* bytes of a line that are shown before an error */

struct found {
    enum gpu_cause cause;
    const char *at; /* start of the error message, which ends with the line */
    int32_t rank;
};

/* XIDs caused by a fault of the program, or by its exit. */
static bool is_of_program(long xid)
{
    static const short by_program[] = {13, 31, 43, 45, 68, 69};

    for (size_t i = 0; i < ARRAY_LEN(by_program); i++)
        if (by_program[i] == xid)
            return true;
    return false;
}

/* The first "rank 3 (host .." in the n bytes at p; NULL: not found. */
static const char *find_rank(const char *p, size_t n, int32_t *ret)
{
    static const char mark[] = "rank ";
    const char *at;

    while ((at = memmem(p, n, mark, sizeof(mark) - 1)) != NULL) {
        char *end;
        const char *digits = at + sizeof(mark) - 1;

        n -= (size_t)(digits - p);
        p = digits;
        if (n == 0 || *digits < '0' || *digits > '9')
            continue;
        long rank = strtol(digits, &end, 10);
        if (rank < INT32_MAX && !strncmp(end, " (host ", 7)) {
            *ret = (int32_t)rank;
            return at;
        }
    }
    return NULL;
}

/* Up to "; ", or so much of it as is looked at: less than is copied. */
static size_t sentence_length(const char *p, size_t n)
{
    const char *end = memmem(p, n, "; ", 2);

    n = end ? (size_t)(end - p) : n;
    return n < MAX_SENTENCE ? n : MAX_SENTENCE;
}

/* "XID 79 (text) on GPU 0 (PCI 0000:3B:00.0) of rank 3 (host b)" at `at`. */
static bool read_xid(const char *at, size_t n, struct found *ret)
{
    char *end;

    n = sentence_length(at, n);
    if (n < 5 || at[4] < '0' || at[4] > '9')
        return false;
    long xid = strtol(at + 4, &end, 10);
    const char *of = memmem(at, n, " on GPU ", 8), *rank = NULL;
    if (of)
        rank = memmem(of, n - (size_t)(of - at), " of rank ", 9);
    if (!rank || rank[9] < '0' || rank[9] > '9')
        return false;
    long number = strtol(rank + 9, &end, 10);
    *ret = (struct found){is_of_program(xid) ? GPU_CAUSE_PROGRAM : GPU_CAUSE_HARDWARE,
                          at, number < INT32_MAX ? (int32_t)number : -1};
    return true;
}

static bool find_xid(const char *line, size_t n, struct found *ret)
{
    const char *at = line, *end = line + n;

    for (; (at = memmem(at, (size_t)(end - at), "XID ", 4)) != NULL; at++)
        if (read_xid(at, (size_t)(end - at), ret))
            return true;
    return false;
}

/* The start of the part of a line to copy for the error at `at`: at most MAX_BEFORE
 * bytes before it, with its rank if it has one. */
static const char *part_begin(const char *line, const char *at)
{
    const char *p;
    int32_t rank;

    while ((p = memmem(line, (size_t)(at - line), "; ", 2)) != NULL)
        line = p + 2;
    const bool is_near = at - line <= MAX_BEFORE;
    const char *near = is_near ? line : at - MAX_BEFORE;
    p = memmem(near, (size_t)(at - near), NCCL_MARK, sizeof(NCCL_MARK) - 1);
    if (p || is_near)
        return p ? p : line;
    p = find_rank(near, (size_t)(at - near), &rank);
    return p ? p : at;
}

/* An error of a kernel or of the GPU: the driver's name for it, and the text that
 * frameworks show. */
static bool find_error(const char *line, size_t n, struct found *ret)
{
    static const struct {
        const char *text;
        enum gpu_cause cause;
    } errors[] = {
        {"CUDA_ERROR_ECC_UNCORRECTABLE", GPU_CAUSE_HARDWARE},
        {"CUDA_ERROR_NVLINK_UNCORRECTABLE", GPU_CAUSE_HARDWARE},
        {"CUDA_ERROR_HARDWARE_STACK_ERROR", GPU_CAUSE_PROGRAM},
        {"CUDA_ERROR_ILLEGAL_ADDRESS", GPU_CAUSE_PROGRAM},
        {"CUDA_ERROR_ILLEGAL_INSTRUCTION", GPU_CAUSE_PROGRAM},
        {"CUDA_ERROR_MISALIGNED_ADDRESS", GPU_CAUSE_PROGRAM},
        {"CUDA_ERROR_INVALID_ADDRESS_SPACE", GPU_CAUSE_PROGRAM},
        {"CUDA_ERROR_INVALID_PC", GPU_CAUSE_PROGRAM},
        {"CUDA_ERROR_LAUNCH_FAILED", GPU_CAUSE_PROGRAM},
        {"CUDA_ERROR_LAUNCH_TIMEOUT", GPU_CAUSE_PROGRAM},
        {"CUDA_ERROR_ASSERT", GPU_CAUSE_PROGRAM},
        {"CUDA error: uncorrectable ECC error encountered", GPU_CAUSE_HARDWARE},
        {"CUDA error: uncorrectable NVLink error", GPU_CAUSE_HARDWARE},
        {"CUDA error: an illegal memory access was encountered", GPU_CAUSE_PROGRAM},
        {"CUDA error: an illegal instruction was encountered", GPU_CAUSE_PROGRAM},
        {"CUDA error: misaligned address", GPU_CAUSE_PROGRAM},
        {"CUDA error: unspecified launch failure", GPU_CAUSE_PROGRAM},
        {"CUDA error: device-side assert triggered", GPU_CAUSE_PROGRAM},
    };

    for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
        const char *at = memmem(line, n, errors[i].text, strlen(errors[i].text));

        if (!at)
            continue;
        const char *begin = part_begin(line, at);
        *ret = (struct found){errors[i].cause, begin, -1};
        (void)find_rank(begin, (size_t)(at - begin), &ret->rank); /* or it has none */
        return true;
    }
    return false;
}

/* Ours: "NCCL asynchronous error on rank 3 (host b), GPU 0 (name): NCCL: text". NCCL
 * before 2.13 reports "unhandled system error" for a lost peer; all other errors are
 * this rank's own. */
static bool find_nccl(const char *line, size_t n, struct found *ret)
{
    static const char *const lost[] = {": remote ", ": unhandled system error"};
    const char *at = memmem(line, n, NCCL_MARK, sizeof(NCCL_MARK) - 1);

    if (!at)
        return false;
    n = sentence_length(at, n - (size_t)(at - line));
    *ret = (struct found){GPU_CAUSE_PROGRAM, at, -1};
    (void)find_rank(at, n, &ret->rank);
    for (size_t i = 0; i < ARRAY_LEN(lost); i++)
        if (memmem(at, n, lost[i], strlen(lost[i])))
            *ret = (struct found){GPU_CAUSE_REMOTE, at, -1};
    return true;
}

/* The lowest of these wins; of equal ones the last line's. */
static int cause_weight(enum gpu_cause c)
{
    switch (c) {
    case GPU_CAUSE_HARDWARE:
        return 0;
    case GPU_CAUSE_PROGRAM:
        return 1;
    case GPU_CAUSE_REMOTE:
        return 2;
    case GPU_CAUSE_NONE:
        break;
    }
    return 3;
}

/* Up to "; ", for people: no control characters, no half of a character at the cut. */
static void detail_copy(const char *p, size_t n, char *ret, size_t size_bytes)
{
    const char *end = memmem(p, n, "; ", 2);

    n = end ? (size_t)(end - p) : n;
    if (n >= size_bytes) {
        n = size_bytes - 1;
        for (int i = 0; i < 3 && n > 0 && ((unsigned char)p[n] & 0xc0) == 0x80; i++)
            n--;
    }
    for (size_t i = 0; i < n; i++)
        ret[i] = (char)((unsigned char)p[i] < 0x20 || p[i] == 0x7f ? '?' : p[i]);
    ret[n] = '\0';
}

enum gpu_cause
gpu_cause_scan(const char *text, char *ret_why, size_t size_bytes, int32_t *ret_rank)
{
    struct found best = {GPU_CAUSE_NONE, text, -1};

    for (const char *p = text; *p; p += *p == '\n') {
        struct found f;
        size_t n = strcspn(p, "\n");

        if ((find_xid(p, n, &f) || find_error(p, n, &f) || find_nccl(p, n, &f))
            && cause_weight(f.cause) <= cause_weight(best.cause))
            best = f;
        p += n;
    }
    detail_copy(best.at, best.cause == GPU_CAUSE_NONE ? 0 : strcspn(best.at, "\n"),
                ret_why, size_bytes);
    *ret_rank = best.rank;
    return best.cause;
}
