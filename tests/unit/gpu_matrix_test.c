/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives on the fakes against a plain reference: each of them with each type and
 * operation, in place and not, one tensor and many, in every way. The fake NCCL ends
 * the test if ranks do not make the same calls. */
#include "runtime/backend/nccl/graph.h"
#include "tests/unit/gpu_matrix.h"
#include "tests/unit/seeded.h"

static const size_t sizes[] = {1, 3, 40};

/* Every type and operation. */
static int run_reductions(struct bench *w, char *said)
{
    static const enum collective colls[] = {COLL_ALLREDUCE, COLL_REDUCE,
                                            COLL_REDUCESCATTER};
    unsigned k = 0;

    for (unsigned c = 0; c < 3; c++)
        for (int t = 0; t < DT_COUNT; t++)
            for (int op = 0; op < OP_COUNT; op++)
                for (unsigned s = 0; s < 6; s++, k++) {
                    if (!reduction_supported((enum reduce_op)op, (enum dtype)t)
                        || op == OP_ADASUM)
                        continue;
                    w->a = (struct ask){.coll = colls[c],
                                        .dtype = (enum dtype)t,
                                        .op = (enum reduce_op)op,
                                        .pre = 1,
                                        .post = 1,
                                        .n_items = sizes[s % 3],
                                        .root = k % w->n,
                                        .is_in_place = s >= 3,
                                        .is_uneven = (k / 3) % 2};
                    if (run_one(w, said))
                        return 1;
                }
    return 0;
}

/* Scales, ranks that have joined, and whole vectors side by side. */
static int run_specials(struct bench *w, char *said)
{
    static const enum collective colls[] = {COLL_ALLREDUCE, COLL_REDUCE,
                                            COLL_REDUCESCATTER};
    static const enum reduce_op ops[] = {OP_SUM, OP_AVERAGE, OP_MAX};
    static const double scales[][2] = {{1, 1}, {0.5, 1}, {1, 3}, {2, 0.25}};
    unsigned k = 0;

    for (unsigned c = 0; c < 3; c++)
        for (int t = 0; t < DT_COUNT; t++)
            for (unsigned s = 0; s < 4; s++)
                for (unsigned f = 0; f < 6; f++, k++) {
                    const enum reduce_op op = t == DT_BOOL ? OP_SUM : ops[k / 2 % 3];
                    w->a = (struct ask){.coll = colls[c],
                                        .dtype = (enum dtype)t,
                                        .op = op,
                                        .pre = scales[s][0],
                                        .post = scales[s][1],
                                        .n_items = sizes[f % 3],
                                        .root = k % w->n,
                                        .is_in_place = k % 2,
                                        .is_tight = k % 3 == 0,
                                        .has_joined = f >= 3};
                    w->a.is_wide = s == 0 && f % 3 != 1 && !cast_is_float((enum dtype)t)
                                   && t != DT_BOOL && t != DT_I64;
                    if (w->a.has_joined) /* it has no place of its own */
                        w->a.is_in_place = false;
                    if (run_one(w, said))
                        return 1;
                }
    return 0;
}

static int run_moves(struct bench *w, char *said)
{
    static const enum collective colls[] = {COLL_BROADCAST, COLL_ALLGATHER, COLL_GATHER,
                                            COLL_ALLTOALL, COLL_SENDRECV};
    static const size_t many[] = {1, 3, ITEMS};
    unsigned k = 0;

    for (unsigned c = 0; c < 5; c++)
        for (int t = 0; t < DT_COUNT; t++)
            for (unsigned s = 0; s < 12; s++, k++) {
                if (colls[c] == COLL_SENDRECV && w->n != 2)
                    continue;
                w->a = (struct ask){.coll = colls[c],
                                    .dtype = (enum dtype)t,
                                    .op = OP_SUM,
                                    .pre = 1,
                                    .post = 1,
                                    .n_items = many[s % 3],
                                    .root = k % w->n,
                                    .is_in_place = s / 3 % 2,
                                    .is_uneven = s >= 6};
                if (run_one(w, said))
                    return 1;
            }
    return 0;
}

/* Real numbers of a tree; */
static int run_adasums(struct bench *w, char *said)
{
    unsigned k = 0;

    for (unsigned t = 0; t < 4; t++)
        for (unsigned s = 0; s < 24; s++, k++) {
            w->a = (struct ask){.coll = s % 2 ? COLL_REDUCE : COLL_ALLREDUCE,
                                .dtype = float_types[t],
                                .op = OP_ADASUM,
                                .pre = s / 6 % 2 ? 0.5 : 1,
                                .post = s / 12 ? 2 : 1,
                                .n_items = sizes[s / 2 % 3],
                                .root = k % w->n,
                                .is_in_place = s / 6 % 2,
                                .is_uneven = k % 3 == 0,
                                .more = s % 5 == 0 && s / 2 % 3 != 2 ? 9001 : 0};
            w->a.has_joined = !w->a.is_in_place && s % 7 == 0;
            if (run_one(w, said))
                return 1;
        }
    return 0;
}

/* More than a chunk, and more than a step of the fusion buffer's alignment. */
static int run_large(struct bench *w, char *said)
{
    static const enum collective colls[] = {
        COLL_ALLREDUCE, COLL_REDUCE, COLL_REDUCESCATTER, COLL_BROADCAST,
        COLL_ALLGATHER, COLL_GATHER, COLL_ALLTOALL};
    static const enum dtype types[] = {DT_F32, DT_I16, DT_U8};

    for (unsigned c = 0; c < 7; c++)
        for (unsigned t = 0; t < 3; t++) {
            w->a = (struct ask){.coll = colls[c],
                                .dtype = types[t],
                                .op = OP_SUM,
                                .pre = 1,
                                .post = 2,
                                .n_items = 2,
                                .root = w->n - 1,
                                .is_uneven = true,
                                .more = 9001};
            if (run_one(w, said))
                return 1;
        }
    return 0;
}

static bool has_replayed(const struct bench *w)
{
    const struct graphs *v = ((struct comm *)w->b)->graphs;
    uint64_t n_captured = 0, n_replayed = 0;

    for (uint32_t i = 0; v && i < GPU_MAX_STREAMS; i++) {
        n_captured += v[i].n_captured;
        n_replayed += v[i].n_replayed;
    }
    return n_captured > 0 && n_replayed >= n_captured;
}

static int run_all(struct bench *w, char *said)
{
    int (*const parts[])(struct bench *, char *) = {run_reductions, run_specials,
                                                    run_moves, run_large, run_adasums};
    /* graphs: the same batches several times, at other addresses */
    const unsigned n_passes = the_case->uses_graphs ? PASSES : 1;
    const struct device *g = w->g;
    struct err err = ERR_INIT;

    for (unsigned i = 0; i < n_passes * 5; i++) {
        if (i % 5 == 0)
            w->n_asked = 0;
        w->mask = the_case->mask;
        w->arena = (void *)(uintptr_t)(w->memory + i / 5 * 16);
        if (parts[i % 5](w, said))
            return 1;
    }
    HOLDS(!the_case->uses_graphs || has_replayed(w));
    return 0;
}

/* --- ways --- */

/* This member's NCCL calls in run_one, a line each; the caller frees. NULL: failed. */
static char *calls_of(struct bench *w, char *said)
{
    char *old = nccl_log_of(w->me);
    char *log = run_one(w, said) ? NULL : nccl_log_of(w->me);

    if (log)
        memmove(log, log + strlen(old), strlen(log + strlen(old)) + 1);
    free(old);
    return log;
}

struct way {
    struct ask a;
    size_t n, grouped; /* calls; those that follow another one in their group */
    uint64_t packed;   /* bytes; of a member that has joined they are not checked */
};

static int run_ways(struct bench *w, const struct way *v, size_t n_ways, char *said)
{
    struct device *g = w->g;
    struct err err = ERR_INIT;
    for (size_t i = 0; i < n_ways; i++) {
        struct device_counts before, after;
        size_t n = 0, grouped = 0;

        w->a = v[i].a;
        w->a.pre = w->a.pre ? w->a.pre : 1;
        w->a.post = w->a.post ? w->a.post : 1;
        w->a.dtype = DT_F32;
        w->a.op = OP_SUM;
        gpu_counts(w->g, &before);
        char *log = calls_of(w, said);
        if (!log)
            return 1;
        gpu_counts(w->g, &after);
        for (const char *p = log; *p; p = strchr(p, '\n') + 1, n++)
            grouped += p[2] == '+'; /* "3 + ..." */
        free(log);
        const uint64_t packed = after.packed_bytes - before.packed_bytes;
        (void)err_set(&err, 0, "way %zu: %zu calls, %zu more in their groups, %llu", i,
                      n, grouped, (unsigned long long)packed);
        HOLDS(n == v[i].n && grouped == v[i].grouped);
        HOLDS(packed == v[i].packed || !has_input(w));
    }
    return 0;
}

static int run_small(struct bench *w, char *said)
{
    static const struct way v[] = {
        {{.coll = COLL_ALLREDUCE, .n_items = 1}, 1, 0, 0},
        {{.coll = COLL_ALLREDUCE, .n_items = 40}, 1, 0, 796},
        {{.coll = COLL_REDUCE, .n_items = 40}, 1, 0, 796},
        {{.coll = COLL_REDUCESCATTER, .n_items = 3}, 3, 2, 0},
        {{.coll = COLL_BROADCAST, .n_items = 64}, 64, 63, 0},
        {{.coll = COLL_BROADCAST, .n_items = 65}, 1, 0, 1296},
        {{.coll = COLL_ALLGATHER, .n_items = 2}, 2, 1, 0},
        {{.coll = COLL_ALLTOALL, .n_items = 2}, 8, 7, 0},
    };

    return run_ways(w, v, ARRAY_LEN(v), said);
}

static int run_each(struct bench *w, char *said)
{
    static const struct way v[] = {
        {{.coll = COLL_ALLREDUCE, .n_items = 3}, 3, 2, 0},
        {{.coll = COLL_REDUCE, .n_items = 3}, 3, 2, 0},
    };

    return run_ways(w, v, ARRAY_LEN(v), said);
}

/* Tensors of 16, 20 and 24 bytes in turn, of which only the last are large: they pass
 * the packed ones. */
static int run_split(struct bench *w, char *said)
{
    static const struct way v[] = {
        {{.coll = COLL_ALLREDUCE, .n_items = 2}, 1, 0, 36},
        {{.coll = COLL_ALLREDUCE, .n_items = 3}, 2, 1, 36},
        {{.coll = COLL_ALLREDUCE, .n_items = 3, .is_in_place = true}, 2, 1, 36},
        {{.coll = COLL_ALLREDUCE, .n_items = 3, .has_joined = true}, 2, 1, 36},
        {{.coll = COLL_ALLREDUCE, .n_items = 40}, 14, 13, 484},
        {{.coll = COLL_ALLREDUCE, .n_items = 40, .pre = 0.5, .post = 3}, 14, 13, 484},
        {{.coll = COLL_ALLREDUCE, .n_items = 80}, 17, 16, 1212},
        {{.coll = COLL_ALLREDUCE, .n_items = 80, .has_joined = true}, 17, 16, 1212},
        {{.coll = COLL_REDUCE, .n_items = 40, .root = 2}, 14, 13, 484},
        {{.coll = COLL_REDUCE, .n_items = 40, .pre = 2, .has_joined = true},
         14,
         13,
         484},
        /* all are large, and the last four lie as packed */
        {{.coll = COLL_ALLREDUCE, .n_items = 20, .is_tight = true}, 17, 16, 0},
        {{.coll = COLL_ALLREDUCE, .n_items = 20, .is_tight = true, .has_joined = true},
         17,
         16,
         0},
    };
    static const char calls[] = "3 AllReduce of 6 f32, sum, root 0\n"
                                "3 + AllReduce of 12 f32, sum, root 0\n";
    const struct device *g = w->g;
    struct err err = ERR_INIT;

    if (run_ways(w, v, ARRAY_LEN(v), said))
        return 1;
    w->a = (struct ask){COLL_ALLREDUCE, DT_F32, OP_SUM, 1, 1, .n_items = 3};
    char *log = calls_of(w, said);
    if (!log)
        return 1;
    (void)err_set(&err, 0, "%s", log);
    HOLDS(strcmp(log, calls) == 0);
    free(log);
    return 0;
}

/* Here those of 20 bytes are large too. One small tensor is not worth two kernels. */
static int run_one_small(struct bench *w, char *said)
{
    static const struct way v[] = {
        {{.coll = COLL_ALLREDUCE, .n_items = 3}, 3, 2, 0},
        {{.coll = COLL_ALLREDUCE, .n_items = 4}, 3, 2, 32},
    };

    return run_ways(w, v, ARRAY_LEN(v), said);
}

/* A graph holds no address of a tensor, so it has no direct calls. */
static int run_split_graphs(struct bench *w, char *said)
{
    static const struct way v[] = {
        {{.coll = COLL_ALLREDUCE, .n_items = 3}, 1, 0, 60},
        {{.coll = COLL_ALLREDUCE, .n_items = 2, .is_tight = true}, 2, 1, 0},
    };

    return run_ways(w, v, ARRAY_LEN(v), said);
}

/* What would be packed if all members had memory for it. */
static int run_unpacked(struct bench *w, char *said)
{
    static const struct way v[] = {
        {{.coll = COLL_ALLREDUCE, .n_items = 3}, 3, 2, 0},
        {{.coll = COLL_BROADCAST, .n_items = 65}, 65, 64, 0},
    };

    return run_ways(w, v, ARRAY_LEN(v), said);
}

/* Nothing of these is packed or converted: they cost no memory of ours. */
static int run_lean(struct bench *w, char *said)
{
    static const struct ask v[] = {
        {COLL_ALLREDUCE, DT_F32, OP_SUM, 1, 1, .n_items = 1},
        {COLL_REDUCE, DT_F32, OP_SUM, 1, 1, .n_items = 1},
        {COLL_REDUCESCATTER, DT_F32, OP_SUM, 1, 2, .n_items = 3},
        {COLL_REDUCESCATTER, DT_F32, OP_SUM, 1, 1, .n_items = 3, .is_uneven = true},
        {COLL_BROADCAST, DT_F32, OP_SUM, 1, 1, .n_items = 3},
        {COLL_ALLTOALL, DT_F32, OP_SUM, 1, 1, .n_items = 3, .is_uneven = true},
    };
    struct device *g = w->g;
    struct err err = ERR_INIT;

    g->scratch.fusion[0].bytes = 0; /* a use would take more */
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        w->a = v[i];
        if (run_one(w, said))
            return 1;
        HOLDS(g->scratch.fusion[0].bytes == 0);
    }
    return 0;
}

/* The fusion buffers are there before the first batch, and stay where they are. */
static int run_packed_ones(struct bench *w, char *said)
{
    const struct device *g = w->g;
    struct fusion_buffer was[GPU_MAX_STREAMS];
    struct err err = ERR_INIT;

    memcpy(was, g->scratch.fusion, sizeof(was));
    for (uint32_t i = 0; i < g->n_streams; i++)
        HOLDS(was[i].at && was[i].bytes >= 8u << 20 && was[i].generation == 1);
    for (unsigned i = 0; i < 8; i++) {
        w->a = (struct ask){.coll = i % 2 ? COLL_ALLREDUCE : COLL_REDUCE,
                            .dtype = i % 4 < 2 ? DT_F32 : DT_I16,
                            .op = OP_SUM,
                            .pre = 1,
                            .post = 1,
                            .n_items = 40};
        if (run_one(w, said))
            return 1;
    }
    HOLDS(atomic_load(&g->counts[GPU_PACKED]) > 0);
    for (uint32_t i = 0; i < g->n_streams; i++)
        HOLDS(g->scratch.fusion[i].at == was[i].at
              && g->scratch.fusion[i].generation == 1);
    return 0;
}

/* As a large batch of a set that member 0 is in and others are not. */
static int grow_buffer(struct device *g, char *said)
{
    struct gpu_scope scope;
    struct err err = ERR_INIT;
    cu_ptr p;

    HOLDS(launcher_drain(&g->launcher, clock_now_ns() + 10 * NS_PER_S) == 0);
    HOLDS(gpu_enter(g, &scope, &err) == 0);
    HOLDS(scratch_fusion(&g->scratch, 0, 9u << 20, g->streams[0], &p, &err) == 0);
    gpu_leave(&scope);
    return 0;
}

/* NCCL's abort waits for graphs that hold its calls. */
static int abort_drops_graphs(struct device *g, struct comm *c, char *said)
{
    const uint64_t deadline_ns = clock_now_ns() + 20 * NS_PER_S;
    struct err err = ERR_INIT;

    gpu_abort(g);
    while (atomic_load(&g->life) != GPU_ENDED) {
        HOLDS(clock_now_ns() < deadline_ns);
        usleep(1000);
    }
    SOON(!c->graphs); /* they stay with a launcher that was left behind */
    return 0;
}

/* The same batches over and over, at other addresses, the last ones without member 1:
 * each is captured once, on all members. */
static int run_again(struct bench *w, char *said)
{
    struct device *g = w->g;
    struct err err = ERR_INIT;

    for (unsigned i = 0; i < 14; i++) {
        w->a = (struct ask){.coll = i % 2 ? COLL_ALLREDUCE : COLL_REDUCE,
                            .dtype = DT_I16, /* it travels as i32 */
                            .op = OP_AVERAGE,
                            .pre = 1,
                            .post = 1,
                            .n_items = 40,
                            .root = 1, /* the rank that has joined is the root of a
                                          reduce */
                            .is_in_place = i < 10 && i / 2 % 2,
                            .has_joined = i >= 10};
        if ((i == 8 && w->me == 0 && grow_buffer(g, said)) || run_one(w, said))
            return 1;
    }
    const struct graphs *of = ((struct comm *)w->b)->graphs;
    HOLDS(of && of->n_captured == 2 && of->n_replayed == 8);
    return the_case->aborts ? abort_drops_graphs(g, (struct comm *)w->b, said) : 0;
}

/* --- cases --- */

static int coll_hook(struct device *g, struct gpu_job *job, struct err *err)
{
    if (job->kind == JOB_REGISTER)
        return register_run(job);
    return job->kind == JOB_BATCH ? gcoll_run(g, job, err) : comm_run(g, job, err);
}

static void drop_hook(struct device *g, struct gpu_job *job)
{
    if (job->kind == JOB_REGISTER)
        register_drop(job);
}

static const struct gpu_hooks hooks = {.needs_nccl = true,
                                       .run = coll_hook,
                                       .drop = drop_hook,
                                       .look = comms_look,
                                       .abort = comms_abort};

static bool has_kernels(void)
{
    struct err err = ERR_INIT;

    return image_count(kernels_image, (size_t)(kernels_image_end - kernels_image), &err)
           != 0; /* KERNELS=none */
}

static void case_start(struct gpu_case c)
{
    c.hooks = &hooks;
    c.body = bench_body;
    if (has_kernels())
        run_case(&c);
}

/* The matrix, in each of these cases. */
static void all_start(const struct gpu_case *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct gpu_case c = v[i];

        c.bench = run_all;
        c.mask = FEWER > 1 ? c.mask | 127 : c.mask; /* under a sanitizer */
        case_start(c);
    }
}

/* One case runs the whole matrix, the other cases a part of it (mask). */
UNIT_TEST(members_get_their_results)
{
    static const struct gpu_case cases[] = {
        {.n = 1, .mask = 3}, /* a set of one needs no NCCL */
        {.n = 2, .mask = 3},
        {.n = 3},
        {.n = 4, .mask = 3, .direct_bytes = 24}, /* some packed, some direct */
        {.n = 5, .mask = 31},
        {.n = 2, .mask = 3, .is_deterministic = true},
        {.n = 2, .mask = 3, .version = "21003"}, /* calls that block */
        {.n = 2, .mask = 7, .n_streams = 3},
        {.n = 2, .mask = 31, .n_streams = 2, .version = "21706"},
        {.n = 3, .mask = 7, .late_faults = "oom=1"}, /* a member has no fusion buffer */
        {.n = 2,
         .mask = 15,
         .late_faults = "oom=4",
         .n_streams = 2}, /* for one stream */
    };

    all_start(cases, ARRAY_LEN(cases));
}

/* Every second batch has registered buffers; the other batches go through the fusion
 * buffer, which is registered too. */
UNIT_TEST(registered_buffers_give_the_same_results)
{
    static const struct gpu_case cases[] = {
        {.n = 1, .mask = 31, .registers = true},
        {.n = 2, .mask = 15, .registers = true},
        {.n = 3, .mask = 15, .registers = true, .direct_bytes = 24},
        {.n = 2, .mask = 31, .registers = true, .n_streams = 2},
        {.n = 3, .mask = 31, .registers = true, .uses_graphs = true},
        {.n = 2,
         .mask = 31,
         .registers = true,
         .version = "21804"}, /* it cannot register */
    };

    all_start(cases, ARRAY_LEN(cases));
}

UNIT_TEST(graphs_give_the_same_results)
{
    static const struct gpu_case cases[] = {
        {.n = 2, .mask = 31, .uses_graphs = true},
        {.n = 3, .mask = 31, .uses_graphs = true, .n_streams = 2, .direct_bytes = 24},
        {.n = 3, .mask = 31, .uses_graphs = true, .is_deterministic = true},
    };

    all_start(cases, ARRAY_LEN(cases));
}

UNIT_TEST(tensors_that_go_as_they_are_take_no_buffer)
{
    case_start((struct gpu_case){.n = 3, .bench = run_lean});
}

UNIT_TEST(batches_that_come_back_are_one_graph_for_all)
{
    case_start((struct gpu_case){.n = 3, .uses_graphs = true, .bench = run_again});
    case_start((struct gpu_case){
        .n = 3, .uses_graphs = true, .is_deterministic = true, .bench = run_again});
    case_start((struct gpu_case){
        .n = 2, .uses_graphs = true, .aborts = true, .bench = run_again});
}

UNIT_TEST(small_tensors_are_one_call)
{
    case_start((struct gpu_case){.n = 3, .bench = run_small});
}

UNIT_TEST(fusion_buffers_are_there_from_the_start)
{
    case_start((struct gpu_case){.n = 3, .bench = run_packed_ones});
    case_start((struct gpu_case){.n = 2, .n_streams = 2, .bench = run_packed_ones});
}

UNIT_TEST(without_a_members_buffer_tensors_are_calls_of_their_own)
{
    case_start(
        (struct gpu_case){.n = 3, .late_faults = "oom=2", .bench = run_unpacked});
}

UNIT_TEST(large_tensors_are_calls_of_one_group)
{
    case_start((struct gpu_case){.n = 3, .direct_bytes = 1, .bench = run_each});
}

UNIT_TEST(small_tensors_are_packed_beside_large_ones)
{
    case_start((struct gpu_case){.n = 3, .direct_bytes = 24, .bench = run_split});
    case_start((struct gpu_case){.n = 3, .direct_bytes = 20, .bench = run_one_small});
    case_start((struct gpu_case){
        .n = 3, .direct_bytes = 24, .uses_graphs = true, .bench = run_split_graphs});
}

UNIT_TEST(deterministic_tensors_are_calls_of_their_own)
{
    case_start((struct gpu_case){.n = 3, .is_deterministic = true, .bench = run_each});
}

UNIT_MAIN(NULL, NULL)
