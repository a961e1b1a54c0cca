/* SPDX-License-Identifier: Apache-2.0 */
/* Error messages when ranks disagree: each names the tensor, both ranks and both
 * values, and keeps the words that Horovod's users search for. */
#include <math.h>

#include "runtime/core/mismatch.h"
#include "tests/unit/core_request.h"

static const uint8_t SET_A[] = {0, 0, 0, 0, 2, 0, 0, 0},
                     SET_B[] = {0, 0, 0, 0, 3, 0, 0, 0};

static struct tensor_request request_of(enum collective coll)
{
    struct tensor_request r = request_make(coll, "g");

    if (coll == COLL_SET_ADD) {
        r.n_set = 2;
        r.set = SET_A;
    }
    return r;
}

enum change {
    SAME,
    TYPE,
    COLL,
    OP,
    ROOT,
    ROWS,
    COLS,
    DIMS,
    PRE,
    POST,
    GROUP,
    NO_GROUP,
    GROUP_N,
    SET,
    CODEC,
    PLACE,
    NO_GPU,
    REGION,
    N_CHANGES,
};

static struct tensor_request request_change(struct tensor_request r, enum change c)
{
    struct tensor_request v[N_CHANGES];

    for (size_t i = 0; i < N_CHANGES; i++)
        v[i] = r;
    v[TYPE].dtype = DT_BF16;
    v[COLL].coll = r.coll == COLL_BROADCAST ? COLL_ALLREDUCE : COLL_BROADCAST;
    v[OP].op = OP_MAX;
    v[ROOT].root = 1;
    v[ROWS].shape[0] = 5;
    v[COLS].shape[1] = 0;
    v[DIMS].ndim = 1;
    v[PRE].prescale = 0.5;
    v[POST].postscale = -0.0;
    v[GROUP].group = 8;
    v[NO_GROUP].group = v[NO_GROUP].group_n = 0;
    v[GROUP_N].group_n = 3;
    v[SET].set = SET_B;
    (void)snprintf(v[CODEC].codec, sizeof(r.codec), "fp16");
    v[PLACE].place = PLACE_CUDA;
    (void)snprintf(v[NO_GPU].no_gpu, sizeof(r.no_gpu), "no driver");
    v[REGION].region = 2;
    return v[c];
}

/* "Mismatched WHAT: tensor "g": rank 3 has LOWER, rank 7 has HIGHER" */
static const struct {
    enum collective coll;
    enum change change;
    const char *what, *lower, *higher; /* NULL: they agree */
} pairs[] = {
    {COLL_ALLREDUCE, SAME, NULL, NULL, NULL},
    {COLL_ALLREDUCE, TYPE, "data types", "float32", "bfloat16"},
    {COLL_ALLREDUCE, COLL, "operations", "ALLREDUCE", "BROADCAST"},
    {COLL_ALLREDUCE, OP, "reduction operation", "SUM", "MAX"},
    {COLL_ALLREDUCE, ROOT, NULL, NULL, NULL},
    {COLL_ALLREDUCE, ROWS, "ALLREDUCE tensor shapes", "[2, 3]",
     "[5, 3] (dimension 0 differs)"},
    {COLL_ALLREDUCE, COLS, "ALLREDUCE tensor shapes", "[2, 3]",
     "[2, 0] (dimension 1 differs)"},
    {COLL_ALLREDUCE, DIMS, "ALLREDUCE tensor shapes", "[2, 3]",
     "[2] (the number of dimensions differs)"},
    {COLL_ALLREDUCE, PRE, "prescale and/or postscale factors", "1 and 1", "0.5 and 1"},
    {COLL_ALLREDUCE, POST, "prescale and/or postscale factors", "1 and 1", "1 and -0"},
    {COLL_ALLREDUCE, CODEC, "compression", "none", "fp16"},
    {COLL_ALLREDUCE, PLACE, "CPU/GPU device selection", "it in CPU memory",
     "it on a GPU"},
    {COLL_ALLREDUCE, GROUP, "groups", "one name of the group", "another"},
    {COLL_ALLREDUCE, NO_GROUP, "groups", "a group", "no group"},
    {COLL_ALLREDUCE, GROUP_N, "group sizes", "2", "3"},
    {COLL_ALLGATHER, ROWS, NULL, NULL, NULL},
    {COLL_ALLGATHER, OP, NULL, NULL, NULL},
    {COLL_ALLGATHER, COLS, "ALLGATHER tensor shapes", "[2, 3]",
     "[2, 0] (dimension 1 differs)"},
    {COLL_ALLTOALL, ROWS, NULL, NULL, NULL},
    {COLL_ALLTOALL, DIMS, "ALLTOALL tensor shapes", "[2, 3]",
     "[2] (the number of dimensions differs)"},
    {COLL_GATHER, ROWS, NULL, NULL, NULL},
    {COLL_GATHER, ROOT, "GATHER root ranks", "root rank 0", "root rank 1"},
    {COLL_BROADCAST, OP, NULL, NULL, NULL},
    {COLL_BROADCAST, PRE, NULL, NULL, NULL},
    {COLL_BROADCAST, ROOT, "BROADCAST root ranks", "root rank 0", "root rank 1"},
    {COLL_BROADCAST, ROWS, "BROADCAST tensor shapes", "[2, 3]",
     "[5, 3] (dimension 0 differs)"},
    {COLL_REDUCE, ROOT, "REDUCE root ranks", "root rank 0", "root rank 1"},
    {COLL_REDUCE, OP, "reduction operation", "SUM", "MAX"},
    {COLL_REDUCESCATTER, ROWS, "REDUCESCATTER tensor shapes", "[2, 3]",
     "[5, 3] (dimension 0 differs)"},
    {COLL_SENDRECV, OP, NULL, NULL, NULL},
    {COLL_SENDRECV, TYPE, "data types", "float32", "bfloat16"},
    {COLL_SENDRECV, ROWS, "SENDRECV tensor shapes", "[2, 3]",
     "[5, 3] (dimension 0 differs)"},
    {COLL_SENDRECV, DIMS, "SENDRECV tensor shapes", "[2, 3]",
     "[2] (the number of dimensions differs)"},
    {COLL_SENDRECV, PLACE, "CPU/GPU device selection", "it in CPU memory",
     "it on a GPU"},
    {COLL_SENDRECV, GROUP_N, "group sizes", "2", "3"},
    {COLL_BARRIER, TYPE, NULL, NULL, NULL},
    {COLL_BARRIER, PLACE, NULL, NULL, NULL},
    {COLL_BARRIER, NO_GROUP, "groups", "a group", "no group"},
    {COLL_BARRIER, COLL, "operations", "BARRIER", "BROADCAST"},
    {COLL_SET_ADD, SAME, NULL, NULL, NULL},
    {COLL_SET_ADD, SET, "process sets", "{0, 2}", "{0, 3}"},
    {COLL_ALLREDUCE, NO_GPU, NULL, NULL, NULL},
    {COLL_ALLREDUCE, REGION, "registered buffers", "it in none", "it in buffer 2"},
    {COLL_ALLGATHER, REGION, "registered buffers", "it in none", "it in buffer 2"},
    {COLL_REGISTER, OP, NULL, NULL, NULL},
    {COLL_REGISTER, ROWS, "REGISTER tensor shapes", "[2, 3]",
     "[5, 3] (dimension 0 differs)"},
    {COLL_REGISTER, ROOT, "buffers to forget", "0", "1"},
    {COLL_SET_REMOVE, SAME, NULL, NULL, NULL},
    {COLL_SET_REMOVE, ROOT, "process sets", "0", "1"},
};

/* Either way round, the lower rank is named first. */
UNIT_TEST(the_first_difference_is_reported)
{
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        struct tensor_request a = request_of(pairs[i].coll), b;
        struct err one = ERR_INIT, two = ERR_INIT;
        char want[256] = "";

        if (pairs[i].what)
            (void)snprintf(want, sizeof(want),
                           "Mismatched %s: tensor \"g\": rank 3 has %s, rank 7 has %s",
                           pairs[i].what, pairs[i].lower, pairs[i].higher);
        if (a.coll != COLL_SET_ADD && a.coll != COLL_SET_REMOVE) {
            a.group = 7;
            a.group_n = 2;
        }
        b = request_change(a, pairs[i].change);
        assert_int_equal(mismatch_pair(&a, 3, &b, 7, &one), want[0] ? -EINVAL : 0);
        assert_int_equal(mismatch_pair(&b, 7, &a, 3, &two), want[0] ? -EINVAL : 0);
        assert_string_equal(one.text, want);
        assert_string_equal(two.text, one.text);
    }
}

UNIT_TEST(a_nan_agrees_with_itself)
{
    struct tensor_request a = request_of(COLL_ALLREDUCE);
    struct err err = ERR_INIT;

    a.prescale = (double)NAN;
    assert_int_equal(mismatch_pair(&a, 0, &a, 1, &err), 0);
}

UNIT_TEST(the_largest_sentence_is_cut_not_broken)
{
    struct tensor_request a = request_of(COLL_ALLREDUCE), b;
    struct err err = ERR_INIT;

    memset(a.name, 'n', sizeof(a.name) - 1);
    a.ndim = TENSOR_MAX_DIMS;
    for (size_t i = 0; i < TENSOR_MAX_DIMS; i++)
        a.shape[i] = INT64_MAX;
    b = a;
    b.shape[0] = 1;
    assert_int_equal(mismatch_pair(&a, 4294967294u, &b, 4294967295u, &err), -EINVAL);
    assert_non_null(
        strstr(err.text, "Mismatched ALLREDUCE tensor shapes: tensor \"nnn"));
    assert_true(strlen(err.text) < sizeof(err.text));
}

static const struct {
    enum collective coll;
    enum reduce_op op;
    enum dtype dtype;
    uint32_t ndim, root, set;
    const char *want;
} alone[] = {
    {COLL_ALLREDUCE, OP_AVERAGE, DT_F32, 0, 9, 0, NULL},
    {COLL_ALLREDUCE, OP_AVERAGE, DT_I32, 1, 0, 0, NULL},
    {COLL_ALLREDUCE, OP_AVERAGE, DT_BOOL, 1, 0, 0,
     "tensor \"g\": ALLREDUCE of bool with AVERAGE is not supported"},
    {COLL_ALLREDUCE, OP_ADASUM, DT_I32, 1, 0, 0,
     "tensor \"g\": ALLREDUCE of int32 with ADASUM is not supported"},
    {COLL_REDUCESCATTER, OP_ADASUM, DT_F32, 1, 0, 0,
     "tensor \"g\": REDUCESCATTER with ADASUM is not supported"},
    {COLL_ALLGATHER, OP_SUM, DT_F32, 0, 0, 0,
     "rank 2 tried to ALLGATHER a rank-zero tensor: tensor \"g\""},
    {COLL_GATHER, OP_SUM, DT_F32, 0, 0, 0,
     "rank 2 tried to GATHER a rank-zero tensor: tensor \"g\""},
    {COLL_ALLTOALL, OP_SUM, DT_F32, 0, 0, 0,
     "rank 2 tried to ALLTOALL a rank-zero tensor: tensor \"g\""},
    {COLL_REDUCESCATTER, OP_SUM, DT_F32, 0, 0, 0,
     "rank 2 tried to REDUCESCATTER a rank-zero tensor: tensor \"g\""},
    {COLL_BROADCAST, OP_SUM, DT_F32, 0, 3, 0, NULL},
    {COLL_BROADCAST, OP_SUM, DT_F32, 0, 4, 0,
     "tensor \"g\": BROADCAST root rank 4 of rank 2 is not in the world of 4 ranks"},
    {COLL_BROADCAST, OP_SUM, DT_F32, 0, 2, 5, NULL},
    {COLL_BROADCAST, OP_SUM, DT_F32, 0, 1, 5,
     "tensor \"g\": BROADCAST root rank 1 of rank 2 is not in process set 5"},
    {COLL_REDUCE, OP_SUM, DT_F32, 0, 1, 5,
     "tensor \"g\": REDUCE root rank 1 of rank 2 is not in process set 5"},
    {COLL_REDUCE, OP_MIN, DT_BOOL, 0, 2, 5, NULL},
    {COLL_GATHER, OP_SUM, DT_F32, 1, 4, 0,
     "tensor \"g\": GATHER root rank 4 of rank 2 is not in the world of 4 ranks"},
    {COLL_BARRIER, OP_SUM, DT_F32, 0, 99, 0, NULL},
};

UNIT_TEST(a_request_that_is_wrong_by_itself_is_refused)
{
    static const uint32_t ranks[] = {0, 2, 3};
    const struct set_view world = {4, NULL}, some = {3, ranks};

    for (size_t i = 0; i < ARRAY_LEN(alone); i++) {
        struct tensor_request q = request_of(alone[i].coll);
        struct err err = ERR_INIT;

        q.op = alone[i].op;
        q.dtype = alone[i].dtype;
        q.ndim = alone[i].ndim;
        q.root = alone[i].root;
        q.process_set = alone[i].set;
        assert_int_equal(mismatch_alone(&q, 2, q.process_set ? &some : &world, &err),
                         alone[i].want ? -EINVAL : 0);
        assert_string_equal(err.text, alone[i].want ? alone[i].want : "");
    }
}

/* The rank that has no GPU is named with the reason, whichever of the two it is. */
UNIT_TEST(a_rank_without_gpu_reports_why)
{
    const struct tensor_request r = request_of(COLL_ALLREDUCE),
                                gpu = request_change(r, PLACE),
                                cpu = request_change(r, NO_GPU);
    struct err err = ERR_INIT;

    assert_int_equal(mismatch_pair(&gpu, 3, &cpu, 7, &err), -EINVAL);
    assert_string_equal(err.text,
                        "Mismatched CPU/GPU device selection: tensor \"g\": rank 3 has "
                        "it on a GPU, rank 7 has it in CPU memory (rank 7 has no GPU: "
                        "no driver)");
    assert_int_equal(mismatch_pair(&gpu, 7, &cpu, 3, &err), -EINVAL);
    assert_non_null(strstr(err.text, "on a GPU (rank 3 has no GPU: no driver)"));
}

UNIT_TEST(a_joined_rank_has_no_registered_buffer)
{
    struct tensor_request q = request_of(COLL_ALLREDUCE);
    struct err err = ERR_INIT;

    q.place = PLACE_CUDA;
    assert_int_equal(mismatch_joined(&q, &err), 0);
    q.region = 1;
    assert_int_equal(mismatch_joined(&q, &err), -EINVAL);
    assert_string_equal(err.text,
                        "Allreduce of registered buffers is not supported with "
                        "Join at this time: tensor \"g\"");
}

UNIT_TEST(a_join_leaves_sums_and_averages)
{
    for (unsigned c = 0; c < COLL_COUNT; c++) {
        for (unsigned o = 0; o < OP_COUNT; o++) {
            struct tensor_request q = request_of((enum collective)c);
            struct err err = ERR_INIT;
            bool is_good = c == COLL_ALLREDUCE && (o == OP_SUM || o == OP_AVERAGE);

            q.op = (enum reduce_op)o;
            assert_int_equal(mismatch_joined(&q, &err), is_good ? 0 : -EINVAL);
            assert_true(is_good
                        || strstr(err.text, "not supported with Join at this time"));
            assert_true(is_good || strstr(err.text, "tensor \"g\""));
        }
    }
}

UNIT_TEST(a_set_has_its_ranks_and_no_others)
{
    static const uint32_t ranks[] = {1, 4, 5, 9};
    const struct set_view s = {4, ranks}, none = {0, ranks}, world = {3, NULL};

    for (uint32_t r = 0; r < 12; r++) {
        assert_int_equal(set_view_has(&s, r), r == 1 || r == 4 || r == 5 || r == 9);
        assert_false(set_view_has(&none, r));
        assert_int_equal(set_view_has(&world, r), r < 3);
    }
    assert_false(set_view_has(&s, UINT32_MAX));
}

UNIT_MAIN(NULL, NULL)
