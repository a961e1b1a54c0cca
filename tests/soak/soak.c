/* SPDX-License-Identifier: Apache-2.0 */
/* soak --seconds S [--seed N] [--tiny N]: started by horovodrun on any number of ranks.
 *
 * Every rank draws the same sequence of scenes from one seed, and its own order of
 * submission and pauses from another: steady steps, groups, every collective with
 * uneven sizes, sends and receives, process sets that are created, overlap and are
 * removed, ranks that join, ranks that disagree, compression. Every result is computed
 * separately and compared. Rank 0 prints a line every ten seconds and one at the end.
 * Memory: resident size after the first fifth of the time and at the end; on a busy
 * machine that has not run OFTEN scenes by then, scenes that run for the first time
 * later may increase it too. --tiny N runs N allreduces of 4 bytes instead of scenes,
 * for the count.
 *
 * Exits with 1 and a message at the first wrong result, wrong status or growth of more
 * than GROWTH_MAX_KB (EARLY_MAX_KB from before there were OFTEN scenes). */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hvd.h"
#include "tests/soak/scene.h"

/* --- scenes --- */

/* n allreduces, submitted in an order of this rank's own. */
static void play_step(int n, const int *order, int set, const int *ranks, int n_ranks)
{
    for (int k = 0; k < n; k++) {
        struct tensor *t = &tensors[order[k]];
        struct hvd_tensor d = tensor_describe(t, 1);

        tensor_fill(t, (int)t->shape[0]);
        pause_sometimes();
        status_ok(hvd_allreduce_async(&d, HVD_SUM, 1, 1, set, &t->h), t->name);
    }
    for (int k = 0; k < n; k++) {
        struct tensor *t = &tensors[k];

        wait_for(t);
        for (int i = 0; i < (int)t->shape[0]; i += 1 + i / 4)
            tensor_expect(t, t->out, i, sum_of(ranks, n_ranks, t->salt, i));
        done_with(t);
    }
}

static void order_shuffle(int *order, int n)
{
    for (int i = 0; i < n; i++) {
        int j = (int)draw_own((uint32_t)i + 1);

        order[i] = order[j];
        order[j] = i;
    }
}

static void name_tensors(int n, const char *prefix)
{
    for (int k = 0; k < n; k++) {
        (void)snprintf(tensors[k].name, sizeof(tensors[k].name), "%s/%d", prefix, k);
        tensors[k].shape[0] = (int64_t)draw_equal(MAX_ELEMS);
        tensors[k].salt = draw_equal(1000);
    }
}

static void play_training(void)
{
    int n = 1 + (int)draw_equal(MAX_TENSORS), order[MAX_TENSORS],
        steps = 5 + (int)draw_equal(60);
    int odd = (int)draw_equal(2) ? (int)draw_equal((uint32_t)steps) : -1;

    name_tensors(n, "grad");
    for (int s = 0; s < steps; s++) {
        if (s == odd) /* a step of another shape in between */
            tensors[0].shape[0] = (int64_t)draw_equal(MAX_ELEMS);
        order_shuffle(order, n);
        play_step(n, order, 0, everybody, size);
    }
}

static void play_grouped(void)
{
    int n = 2 + (int)draw_equal(8), order[MAX_TENSORS];

    name_tensors(n, "grouped");
    for (int s = 0; s < 10; s++) {
        order_shuffle(order, n);
        for (int k = 0; k < n; k++) {
            struct tensor *t = &tensors[order[k]];
            struct hvd_tensor d = tensor_describe(t, 1);

            tensor_fill(t, (int)t->shape[0]);
            d.group = "group";
            d.group_size = n;
            pause_sometimes();
            status_ok(hvd_allreduce_async(&d, HVD_SUM, 1, 1, 0, &t->h), t->name);
        }
        for (int k = 0; k < n; k++) {
            wait_for(&tensors[k]);
            for (int i = 0; i < (int)tensors[k].shape[0]; i += 13)
                tensor_expect(&tensors[k], tensors[k].out, i,
                              sum_of(everybody, size, tensors[k].salt, i));
            done_with(&tensors[k]);
        }
    }
}

/* Rows of rank r in the uneven collectives; 0 too. */
static int rows_of(int r, uint32_t salt)
{
    return (int)((uint32_t)(r + 1) * (salt | 1) % 9);
}

static void play_gathers(void)
{
    struct tensor *t = &tensors[0];
    int cols = 1 + (int)draw_equal(20), root = (int)draw_equal((uint32_t)size), ndim,
        at = 0;
    bool is_gather = draw_equal(2);
    int64_t shape[HVD_MAX_DIMS];
    struct hvd_tensor d = tensor_describe(t, 2);
    void *out;

    (void)snprintf(t->name, sizeof(t->name), "gather");
    t->salt = draw_equal(1000);
    t->shape[0] = rows_of(rank, t->salt);
    t->shape[1] = cols;
    tensor_fill(t, rows_of(rank, t->salt) * cols);
    pause_sometimes();
    if (is_gather)
        status_ok(hvd_gather_async(&d, root, NULL, NULL, 0, &t->h), t->name);
    else
        status_ok(hvd_allgather_async(&d, NULL, NULL, 0, &t->h), t->name);
    wait_for(t);
    status_ok(hvd_result(t->h, &out, &ndim, shape), t->name);
    for (int r = 0; r < size && (!is_gather || rank == root); r++)
        for (int i = 0; i < rows_of(r, t->salt) * cols; i++)
            tensor_expect(t, out, at++, rank_value(r, t->salt, i));
    if ((!is_gather || rank == root) && shape[0] * cols != at)
        soak_die("%s: %lld rows, not %d", t->name, (long long)shape[0], at / cols);
    done_with(t);
}

static void play_roots(void)
{
    struct tensor *t = &tensors[0];
    int root = (int)draw_equal((uint32_t)size), n = (int)draw_equal(MAX_ELEMS);
    bool is_reduce = draw_equal(2);
    struct hvd_tensor d = tensor_describe(t, 1);

    (void)snprintf(t->name, sizeof(t->name), "root");
    t->salt = draw_equal(1000);
    t->shape[0] = n;
    tensor_fill(t, n);
    pause_sometimes();
    if (is_reduce)
        status_ok(hvd_reduce_async(&d, HVD_SUM, 1, 1, root, 0, &t->h), t->name);
    else
        status_ok(hvd_broadcast_async(&d, root, 0, &t->h), t->name);
    wait_for(t);
    for (int i = 0; i < n && (!is_reduce || rank == root); i += 3)
        tensor_expect(t, t->out, i,
                      is_reduce ? sum_of(everybody, size, t->salt, i)
                                : rank_value(root, t->salt, i));
    done_with(t);
}

static void play_scatter(void)
{
    struct tensor *t = &tensors[0];
    int rows = (int)draw_equal(100), cols = 1 + (int)draw_equal(20), first, n, ndim;
    int64_t shape[HVD_MAX_DIMS];
    struct hvd_tensor d = tensor_describe(t, 2);
    void *out;

    (void)snprintf(t->name, sizeof(t->name), "scatter");
    t->salt = draw_equal(1000);
    t->shape[0] = rows;
    t->shape[1] = cols;
    tensor_fill(t, rows * cols);
    pause_sometimes();
    status_ok(hvd_reducescatter_async(&d, HVD_SUM, 1, 1, NULL, NULL, 0, &t->h),
              t->name);
    wait_for(t);
    status_ok(hvd_result(t->h, &out, &ndim, shape), t->name);
    n = rows / size + (rank < rows % size);
    first = rank * (rows / size) + (rank < rows % size ? rank : rows % size);
    if (shape[0] != n)
        soak_die("%s: %lld rows, not %d", t->name, (long long)shape[0], n);
    for (int i = 0; i < n * cols; i++) {
        float want = sum_of(everybody, size, t->salt, first * cols + i);

        tensor_expect(t, out, i, want);
    }
    done_with(t);
}

static int split_share(int from, int to, uint32_t salt)
{
    return (int)((uint32_t)(from * 5 + to * 3) * (salt | 1) % 6);
}

static void play_exchange(void)
{
    struct tensor *t = &tensors[0];
    int64_t splits[MAX_RANKS], received[MAX_RANKS], shape[HVD_MAX_DIMS];
    int rows = 0, at = 0, ndim;
    struct hvd_tensor d = tensor_describe(t, 1);
    void *out;

    (void)snprintf(t->name, sizeof(t->name), "exchange");
    t->salt = draw_equal(1000);
    for (int j = 0; j < size; j++)
        rows += (int)(splits[j] = split_share(rank, j, t->salt));
    t->shape[0] = rows;
    tensor_fill(t, rows);
    pause_sometimes();
    status_ok(hvd_alltoall_async(&d, splits, size, NULL, NULL, 0, &t->h), t->name);
    wait_for(t);
    status_ok(hvd_result(t->h, &out, &ndim, shape), t->name);
    status_ok(hvd_received_splits(t->h, received, size), t->name);
    for (int r = 0; r < size; r++) {
        int before = 0;

        for (int j = 0; j < rank; j++)
            before += split_share(r, j, t->salt);
        if (received[r] != split_share(r, rank, t->salt))
            soak_die("%s: %lld rows of rank %d", t->name, (long long)received[r], r);
        for (int i = 0; i < split_share(r, rank, t->salt); i++)
            tensor_expect(t, out, at++, rank_value(r, t->salt, before + i));
    }
    done_with(t);
}

/* Each rank sends to the one `by` further on and receives from the one `by` before. */
static void
tensor_shift(struct tensor *sent, struct tensor *got, const char *name, int by)
{
    int to = (rank + by) % size, from = (rank + size - by) % size;
    struct hvd_tensor s = tensor_describe(sent, 1), g = tensor_describe(got, 1);
    bool receives_first = draw_own(2);

    (void)snprintf(sent->name, sizeof(sent->name), "%s", name);
    (void)snprintf(got->name, sizeof(got->name), "%s", name);
    tensor_fill(sent, (int)sent->shape[0]);
    if (receives_first)
        status_ok(hvd_recv_async(&g, from, &got->h), name);
    pause_sometimes();
    status_ok(hvd_send_async(&s, to, &sent->h), name);
    if (!receives_first)
        status_ok(hvd_recv_async(&g, from, &got->h), name);
}

static void play_transfers(void)
{
    int n = 1 + (int)draw_equal(4), rounds = 1 + (int)draw_equal(10), by[4];
    char name[24];

    if (size < 2)
        return;
    for (int i = 0; i < n; i++)
        by[i] = 1 + (int)draw_equal((uint32_t)size - 1);
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < n; i++) {
            struct tensor *sent = &tensors[2 * i], *got = sent + 1;

            sent->salt = got->salt = draw_equal(1000);
            sent->shape[0] = got->shape[0] = (int64_t)draw_equal(MAX_ELEMS);
            (void)snprintf(name, sizeof(name), "shift/%d", i);
            tensor_shift(sent, got, name, by[i]);
        }
        for (int i = 0; i < n; i++) {
            struct tensor *sent = &tensors[2 * i], *got = sent + 1;

            wait_for(got);
            wait_for(sent);
            for (int k = 0; k < (int)got->shape[0]; k += 3)
                tensor_expect(got, got->out, k,
                              rank_value((rank + size - by[i]) % size, got->salt, k));
            done_with(got);
            done_with(sent);
        }
    }
}

/* Two overlapping sets, used in turn, then removed. */
static void process_sets(void)
{
    int members[2][MAX_RANKS], n[2] = {0, 0}, ids[2], order[MAX_TENSORS];

    if (size < 3)
        return;
    for (int s = 0; s < 2; s++) {
        int skip = (int)draw_equal((uint32_t)size - 1) + s;

        for (int r = 0; r < size; r++)
            if (r != skip % size)
                members[s][n[s]++] = r;
    }
    if (memcmp(members[0], members[1], sizeof(int) * (size_t)n[0]) == 0)
        return;
    for (int s = 0; s < 2; s++)
        status_ok(hvd_process_set_add(members[s], n[s], &ids[s]), "add");
    for (int i = 0; i < 6; i++) {
        int s = (int)draw_equal(2), k = 1 + (int)draw_equal(5);

        name_tensors(k, s ? "set1" : "set0");
        order_shuffle(order, k);
        if (hvd_process_set_rank(ids[s]) >= 0)
            play_step(k, order, ids[s], members[s], n[s]);
    }
    for (int s = 0; s < 2; s++)
        status_ok(hvd_process_set_remove(ids[s]), "remove");
}

/* Rank r has steps_of(r) steps of data; a rank without data joins. */
static void play_join(void)
{
    uint32_t salt = draw_equal(1000);
    struct hvd_tensor j = {.size_bytes = sizeof(j), .name = "join", .device = -1};
    hvd_handle h;

    (void)snprintf(tensors[0].name, sizeof(tensors[0].name), "uneven");
    tensors[0].shape[0] = 1 + (int64_t)draw_equal(500);
    tensors[0].salt = salt;
    for (int s = 0; s < rows_of(rank, salt); s++) {
        int there[MAX_RANKS], n = 0, first = 0;

        for (int r = 0; r < size; r++)
            if (s < rows_of(r, salt))
                there[n++] = r;
        play_step(1, &first, 0, there, n);
    }
    pause_sometimes();
    status_ok(hvd_join_async(&j, &h), "join");
    status_ok(hvd_wait(h, -1), "join");
    if (hvd_joined_last(h) < 0 || hvd_joined_last(h) >= size)
        soak_die("join: the last is %d", hvd_joined_last(h));
    status_ok(hvd_release(h), "join");
    n_done++;
}

/* One rank differs: that operation fails on all, and no other. */
static void play_disagreement(void)
{
    struct tensor *t = &tensors[0];
    int odd = (int)draw_equal((uint32_t)size), how = (int)draw_equal(3), rc;
    struct hvd_tensor d = tensor_describe(t, 1);

    if (size < 2)
        return;
    (void)snprintf(t->name, sizeof(t->name), "odd");
    t->shape[0] = 10 + (rank == odd && how == 0);
    if (rank == odd && how == 1)
        d.dtype = HVD_INT32;
    pause_sometimes();
    status_ok(hvd_allreduce_async(&d, rank == odd && how == 2 ? HVD_MAX : HVD_SUM, 1, 1,
                                  0, &t->h),
              t->name);
    rc = hvd_wait(t->h, -1);
    if (rc != HVD_INVALID_ARGUMENT || !strstr(hvd_last_error(), "Mismatched"))
        soak_die("a mismatch ended with %d: %s", rc, hvd_last_error());
    done_with(t);
    n_done++;
}

static void play_compressed(void)
{
    static const char *const codecs[] = {"fp16", "bf16", "int8:feedback=0"};
    struct tensor *t = &tensors[0];
    int n = 1 + (int)draw_equal(MAX_ELEMS - 1);
    struct hvd_tensor d = tensor_describe(t, 1);

    d.compression = codecs[draw_equal(3)];
    (void)snprintf(t->name, sizeof(t->name), "compressed");
    t->salt = draw_equal(1000);
    t->shape[0] = n;
    tensor_fill(t, n);
    pause_sometimes();
    status_ok(hvd_allreduce_async(&d, HVD_SUM, 1, 1, 0, &t->h), t->name);
    wait_for(t);
    for (int i = 0; i < n; i += 5) {
        float want = sum_of(everybody, size, t->salt, i);

        if (fabsf(t->out[i] - want) > 0.15f * (float)size)
            soak_die("%s by %s: element %d is %g, not %g", t->name, d.compression, i,
                     (double)t->out[i], (double)want);
    }
    done_with(t);
}

static void play_barriers(void)
{
    for (int i = 0; i < 20; i++) {
        struct hvd_tensor d = {
            .size_bytes = sizeof(d), .name = "barrier", .device = -1};
        hvd_handle h;

        pause_sometimes();
        status_ok(hvd_barrier_async(&d, 0, &h), "barrier");
        status_ok(hvd_wait(h, -1), "barrier");
        status_ok(hvd_release(h), "barrier");
        n_done++;
    }
}

static const struct {
    const char *name;
    void (*play)(void);
} scenes[] = {{"training", play_training},         {"groups", play_grouped},
              {"gathers", play_gathers},           {"roots", play_roots},
              {"reducescatter", play_scatter},     {"alltoall", play_exchange},
              {"process sets", process_sets},      {"join", play_join},
              {"disagreement", play_disagreement}, {"compression", play_compressed},
              {"barriers", play_barriers},         {"transfers", play_transfers},
              {"training", play_training}};

/* --- the whole --- */

static double now_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static long resident_kb(void)
{
    long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");

    if (f) {
        if (fscanf(f, "%ld %ld", &pages, &resident) != 2)
            resident = 0;
        (void)fclose(f);
    }
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* All ranks must end with the same scene: rank 0's clock decides. */
static bool is_over(double end_s)
{
    float over = now_s() >= end_s;
    int64_t one = 1;
    struct hvd_tensor d = {.size_bytes = sizeof(d),
                           .name = "over",
                           .data = &over,
                           .output = &over,
                           .dtype = HVD_FLOAT32,
                           .ndim = 1,
                           .shape = &one,
                           .device = -1};
    hvd_handle h;

    status_ok(hvd_broadcast_async(&d, 0, 0, &h), "over");
    status_ok(hvd_wait(h, -1), "over");
    status_ok(hvd_release(h), "over");
    return over != 0;
}

static void soak_report(double began_s, long first_kb)
{
    struct hvd_stats s = {.size_bytes = sizeof(s)};

    if (rank != 0)
        return;
    status_ok(hvd_stats(&s), "stats");
    (void)printf(
        "soak: %.0f s, %llu operations, %llu scenes, %llu plans, %llu by plan, "
        "resident %ld KiB (%+ld)\n",
        now_s() - began_s, (unsigned long long)n_done, (unsigned long long)n_scenes,
        (unsigned long long)s.plans, (unsigned long long)s.planned, resident_kb(),
        first_kb ? resident_kb() - first_kb : 0);
    (void)fflush(stdout);
}

static void soak_play(double seconds)
{
    double began = now_s(), told = began;
    long first_kb = 0, max_kb = GROWTH_MAX_KB;

    while (!is_over(began + seconds)) {
        uint32_t s = draw_equal(sizeof(scenes) / sizeof(scenes[0]));

        scene_name = scenes[s].name;
        scenes[s].play();
        n_scenes++;
        if (first_kb == 0 && now_s() > began + seconds / 5) {
            first_kb = resident_kb();
            max_kb = n_scenes < OFTEN ? EARLY_MAX_KB : GROWTH_MAX_KB;
        }
        if (now_s() > told + 10) {
            told = now_s();
            soak_report(began, first_kb);
        }
    }
    soak_report(began, first_kb);
    if (first_kb > 0 && resident_kb() > first_kb + max_kb)
        soak_die("resident memory grew from %ld to %ld KiB", first_kb, resident_kb());
}

static void play_tiny(uint64_t n)
{
    double began = now_s();
    long first_kb = 0;
    float v = 1;
    int64_t one = 1;
    struct hvd_tensor d = {.size_bytes = sizeof(d),
                           .name = "tiny",
                           .data = &v,
                           .output = &v,
                           .dtype = HVD_FLOAT32,
                           .ndim = 1,
                           .shape = &one,
                           .device = -1};

    for (n_done = 0; n_done < n; n_done++) {
        hvd_handle h;

        v = 1;
        status_ok(hvd_allreduce_async(&d, HVD_SUM, 1, 1, 0, &h), "tiny");
        status_ok(hvd_wait(h, -1), "tiny");
        status_ok(hvd_release(h), "tiny");
        if (v != (float)size)
            soak_die("operation %llu: %g", (unsigned long long)n_done, (double)v);
        if (n_done == n / 10)
            first_kb = resident_kb();
        if (n_done % (n / 10 + 1) == n / 10)
            soak_report(began, first_kb);
    }
    soak_report(began, first_kb);
    if (resident_kb() > first_kb + 512)
        soak_die("resident memory grew from %ld to %ld KiB", first_kb, resident_kb());
}

int main(int argc, char **argv)
{
    double seconds = 60;
    uint64_t seed = 1, n_tiny = 0;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seconds") == 0)
            seconds = strtod(argv[i + 1], NULL);
        else if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--tiny") == 0)
            n_tiny = strtoull(argv[i + 1], NULL, 10);
        else
            soak_die("unknown option %s", argv[i]);
    }
    status_ok(hvd_init(NULL), "hvd_init");
    rank = hvd_rank();
    size = hvd_size();
    if (size > MAX_RANKS)
        soak_die("%d ranks, must be at most %d", size, MAX_RANKS);
    for (int r = 0; r < size; r++)
        everybody[r] = r;
    common = seed * 0x9e3779b97f4a7c15ull | 1;
    own = (seed + 1000003u * (uint64_t)(rank + 1)) * 0x9e3779b97f4a7c15ull | 1;
    if (n_tiny > 0)
        play_tiny(n_tiny);
    else
        soak_play(seconds);
    status_ok(hvd_shutdown(), "hvd_shutdown");
    if (rank == 0)
        (void)printf("soak: ok\n");
    return 0;
}
