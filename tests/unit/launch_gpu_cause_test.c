/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_cause.c: GPU failures in the last lines of a rank; and what verdict.c makes of
 * them, in every order of arrival. */
#include "runtime/contract/gpu_cause.h"
#include "tests/unit/launch_fixture.h"

#define XID_79                                                                         \
    "XID 79 (GPU has fallen off the bus) on GPU 0 (PCI 0000:3B:00.0) "                 \
    "of rank 1 (host b): the GPU"
#define ASYNC  "NCCL asynchronous error on rank 2 (host c), GPU 0 (H100): NCCL: "
#define REMOTE ASYNC "remote process exited or there was a network error"

UNIT_TEST(gpu_causes_are_found_in_last_lines)
{
    static const struct {
        const char *text;
        enum gpu_cause cause;
        int32_t rank;
        const char *why;
    } table[] = {
        {"", GPU_CAUSE_NONE, -1, ""},
        {"step 4\nValueError: 3\n", GPU_CAUSE_NONE, -1, ""},
        {XID_79, GPU_CAUSE_HARDWARE, 1, XID_79},
        {"x\nHorovodInternalError: rank 1 (host b, pid 7): " XID_79
         "; rank 1 (host b): cuEventQuery: gone (CUDA_ERROR_UNKNOWN)\nAborted\n",
         GPU_CAUSE_HARDWARE, 1, XID_79},
        {"XID 31 (GPU memory page fault) on GPU 2 of rank 7: hint; more\n",
         GPU_CAUSE_PROGRAM, 7,
         "XID 31 (GPU memory page fault) on GPU 2 of rank 7: hint"},
        {"XID 999 on GPU 1 of rank 0 (host a)", GPU_CAUSE_HARDWARE, 0,
         "XID 999 on GPU 1 of rank 0 (host a)"},
        /* neither ours nor whole */
        {"NVRM: Xid (PCI:0000:3b:00): 79", GPU_CAUSE_NONE, -1, ""},
        {"XID 79 on GPU 0", GPU_CAUSE_NONE, -1, ""},
        {"XID 79 on GPU 0\nof rank 1", GPU_CAUSE_NONE, -1, ""},
        {"XID ", GPU_CAUSE_NONE, -1, ""},
        {"XID 79 on GPU 0 of rank ", GPU_CAUSE_NONE, -1, ""},
        /* CUDA's */
        {"rank 3 (host b): cuEventQuery: an illegal memory access was encountered "
         "(CUDA_ERROR_ILLEGAL_ADDRESS); the CUDA context of this process is lost\n",
         GPU_CAUSE_PROGRAM, 3,
         "rank 3 (host b): cuEventQuery: an illegal memory access was encountered "
         "(CUDA_ERROR_ILLEGAL_ADDRESS)"},
        {"a; b: CUDA_ERROR_ECC_UNCORRECTABLE", GPU_CAUSE_HARDWARE, -1,
         "b: CUDA_ERROR_ECC_UNCORRECTABLE"},
        {"RuntimeError: CUDA error: an illegal memory access was encountered\nhint\n",
         GPU_CAUSE_PROGRAM, -1,
         "RuntimeError: CUDA error: an illegal memory access was encountered"},
        /* TensorFlow prints this on every host without a GPU */
        {"failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is "
         "detected\n",
         GPU_CAUSE_NONE, -1, ""},
        {"failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: "
         "UNKNOWN\n",
         GPU_CAUSE_NONE, -1, ""},
        /* NCCL's */
        {"E: " REMOTE, GPU_CAUSE_REMOTE, -1, REMOTE},
        {"E: " ASYNC "unhandled system error", GPU_CAUSE_REMOTE, -1,
         ASYNC "unhandled system error"},
        {ASYNC "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
         GPU_CAUSE_PROGRAM, 2,
         ASYNC "unhandled cuda error (run with NCCL_DEBUG=INFO for details)"},
        {ASYNC "an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)",
         GPU_CAUSE_PROGRAM, 2,
         ASYNC "an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)"},
        {"E: rank 2 (host c, pid 7): and so on; and " ASYNC
         "an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS); x",
         GPU_CAUSE_PROGRAM, 2,
         ASYNC "an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)"},
        /* the weightiest, and of those the last */
        {REMOTE "\n" XID_79 "\n" REMOTE "\nCUDA_ERROR_LAUNCH_FAILED\n",
         GPU_CAUSE_HARDWARE, 1, XID_79},
        {"CUDA_ERROR_ASSERT\nCUDA_ERROR_LAUNCH_FAILED\n", GPU_CAUSE_PROGRAM, -1,
         "CUDA_ERROR_LAUNCH_FAILED"},
    };
    char why[240], again[240];
    int32_t rank;

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        assert_int_equal(gpu_cause_scan(table[i].text, why, sizeof(why), &rank),
                         table[i].cause);
        assert_string_equal(why, table[i].why);
        assert_int_equal(rank, table[i].rank);
        assert_int_equal(gpu_cause_scan(why, again, sizeof(again), &rank),
                         table[i].cause);
        assert_string_equal(again, why);
        assert_int_equal(rank, table[i].rank);
    }
}

UNIT_TEST(a_cause_far_in_a_line_is_cut_in_front)
{
    char text[1000], why[60];
    int32_t rank;

    memset(text, 'x', sizeof(text));
    (void)snprintf(text + 800, sizeof(text) - 800, " CUDA_ERROR_ASSERT: no");
    assert_int_equal(gpu_cause_scan(text, why, sizeof(why), &rank), GPU_CAUSE_PROGRAM);
    assert_string_equal(why, "CUDA_ERROR_ASSERT: no");
    (void)snprintf(text, sizeof(text), "%0200d rank 4 (host x): CUDA_ERROR_ASSERT", 0);
    assert_int_equal(gpu_cause_scan(text, why, sizeof(why), &rank), GPU_CAUSE_PROGRAM);
    assert_string_equal(why, "rank 4 (host x): CUDA_ERROR_ASSERT");
    assert_int_equal(rank, 4);
    (void)snprintf(text, sizeof(text), "%s and the rest of a very long sentence %0500d",
                   XID_79, 0);
    assert_int_equal(gpu_cause_scan(text, why, sizeof(why), &rank), GPU_CAUSE_HARDWARE);
    assert_int_equal(strlen(why), sizeof(why) - 1);
}

/* --- verdicts --- */

/* On one host, with last lines. */
static struct report
report_with_tail(int32_t rank, int code, int sig, const char *tail, uint64_t us)
{
    struct report r = report_of(rank, code, sig, -1, us);

    (void)snprintf(r.f.host, sizeof(r.f.host), "host");
    (void)snprintf(r.tail, sizeof(r.tail), "%s", tail);
    report_explain(&r);
    return r;
}

struct case_row {
    struct {
        int code, sig;
        const char *tail;
    } rank[3];
    int32_t first;
    const char *why; /* how it begins */
};

static void check_order(const struct case_row *row, const int order[3])
{
    char text[480];
    CLEANUP(verdict_release) struct launch_verdict v;

    verdict_init(&v);
    for (int k = 0; k < 3; k++) {
        struct report r = report_with_tail(
            order[k], row->rank[order[k]].code, row->rank[order[k]].sig,
            row->rank[order[k]].tail, (uint64_t)order[k]);
        assert_int_equal(verdict_add(&v, &r, (uint64_t)k * MS), 0);
    }
    const struct report *first = verdict_pick(&v);
    assert_int_equal(first->f.rank, row->first);
    assert_memory_equal(first->f.why, row->why, strlen(row->why));
    assert_true(*row->why || !*first->f.why);
    report_sentence(first, text, sizeof(text));
    if (*row->why)
        assert_non_null(strstr(text, row->why));
}

UNIT_TEST(the_gpu_is_the_cause_in_every_order_of_arrival)
{
    static const struct case_row table[] = {
        /* the world's error message is in the last lines of all ranks */
        {{{1, 0, XID_79}, {1, 0, XID_79}, {1, 0, XID_79}}, 1, XID_79},
        /* others die of it, by whatever signal, and before it */
        {{{0, SIGSEGV, ""}, {1, 0, XID_79}, {0, SIGABRT, REMOTE}}, 1, XID_79},
        {{{1, 0, ""}, {1, 0, XID_79}, {9, 0, ""}}, 1, XID_79},
        {{{1, 0, "rank 1 (host b, pid 3) was lost: x"}, {1, 0, XID_79}, {1, 0, REMOTE}},
         1,
         XID_79},
        /* it had no time to print the cause itself */
        {{{1, 0, XID_79}, {0, SIGABRT, ""}, {1, 0, REMOTE}}, 1, XID_79},
        {{{1, 0, REMOTE}, {0, SIGKILL, "w"}, {1, 0, XID_79}}, 1, XID_79},
        /* whom it lost then, it lost by this */
        {{{1, 0, "rank 1 (host b) was lost: x"},
          {1, 0, XID_79 "\nrank 0 (host a, pid 1) was lost: x"},
          {1, 0, REMOTE}},
         1,
         XID_79},
        /* NCCL lost a peer: another rank that failed is the cause */
        {{{1, 0, REMOTE}, {1, 0, ""}, {1, 0, REMOTE}}, 1, ""},
        {{{1, 0, REMOTE}, {0, SIGKILL, ""}, {1, 0, REMOTE}}, 1, ""},
        /* an illegal address of a survivor may be the memory of the one that died */
        {{{0, SIGKILL, ""}, {1, 0, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {1, 0, REMOTE}},
         0,
         ""},
        {{{1, 0, "lost rank 1 (b)"}, {1, 0, "CUDA_ERROR_ASSERT"}, {1, 0, ""}},
         1,
         "CUDA_ERROR_ASSERT"},
        {{{1, 0, ""}, {1, 0, "CUDA_ERROR_ASSERT"}, {1, 0, ""}}, 1, "CUDA_ERROR_ASSERT"},
    };
    static const int order[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                    {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        for (size_t k = 0; k < ARRAY_LEN(order); k++)
            check_order(&table[i], order[k]);
}

UNIT_TEST(a_hung_ranks_gpu_is_reported_by_other_ranks)
{
    CLEANUP(verdict_release) struct launch_verdict v;
    struct report r = report_with_tail(0, 1, 0, "E: " XID_79 "; and more", 5);

    verdict_init(&v);
    assert_int_equal(verdict_add(&v, &r, 10 * MS), 0);
    assert_int_equal(verdict_deadline_ns(&v), (10ull + VERDICT_BLAME_MS) * MS);
    assert_int_equal(verdict_pick(&v)->f.rank, 0); /* rank 1 never exits */
    assert_string_equal(verdict_pick(&v)->f.why, XID_79);
}

UNIT_TEST(the_decision_waits_while_all_lost_somebody)
{
    CLEANUP(verdict_release) struct launch_verdict v;
    struct report remote = report_with_tail(2, 1, 0, REMOTE, 5),
                  cause = report_with_tail(1, 1, 0, "", 9);

    verdict_init(&v);
    assert_int_equal(verdict_add(&v, &remote, 10 * MS), 0);
    assert_int_equal(verdict_deadline_ns(&v), (10ull + VERDICT_BLAME_MS) * MS);
    assert_int_equal(verdict_add(&v, &cause, 20 * MS), 0);
    assert_int_equal(verdict_deadline_ns(&v), (10ull + VERDICT_WINDOW_MS) * MS);
    assert_int_equal(verdict_pick(&v)->f.rank, 1);
}

UNIT_TEST(a_lost_worker_keeps_its_own_reason)
{
    CLEANUP(verdict_release) struct launch_verdict v;
    struct report lost = report_with_tail(1, 125, 0, "", 5),
                  told = report_with_tail(0, 1, 0, XID_79, 9);

    lost.f.rank = -1;
    (void)snprintf(lost.f.why, sizeof(lost.f.why), "worker 1 was lost");
    verdict_init(&v);
    assert_int_equal(verdict_add(&v, &told, 1), 0);
    assert_int_equal(verdict_add(&v, &lost, 2), 0);
    assert_int_equal(verdict_pick(&v)->f.rank, -1);
    assert_string_equal(verdict_pick(&v)->f.why, "worker 1 was lost");
}

UNIT_MAIN(NULL, NULL)
