/* SPDX-License-Identifier: Apache-2.0 */
/* Registered buffers through the C API, on a device in memory (fake_device.h): all
 * ranks have one or none, tensors in it carry it, and differences are refused. That NCCL
 * gets what it needs is for gpu_register_test and gpu_matrix_test. */
#include "tests/unit/hvd_world.h"

#include "tests/unit/hvd_gpu.h"

enum { COUNT = 1000 };
static float memory[2][COUNT];

static int register_now(const char *name, float *p, int64_t n, int set)
{
    struct hvd_tensor t = on_gpu(name, HVD_FLOAT32, p, NULL, &n);
    hvd_handle h;
    int rc = hvd_register_async(&t, set, &h);

    return rc < 0 ? rc : wait_release(h);
}

static int sum_in_set(const char *name, float *in, float *out, int64_t n, int set)
{
    struct hvd_tensor t = on_gpu(name, HVD_FLOAT32, in, out, &n);
    hvd_handle h;
    int rc = hvd_allreduce_async(&t, HVD_SUM, 1, 1, set, &h);

    return rc < 0 ? rc : wait_release(h);
}

/* --- all have it --- */

static void all_have_it(int rank, int size)
{
    float *v = memory[0], *w = memory[1];
    hvd_handle h;

    CHECK_OK(hvd_init(NULL));
    v[1] = 1;
    CHECK_OK(register_now("one", v, COUNT, 0));
    CHECK_OK(register_now("two", w, COUNT, 0));
    CHECK(fake.n_registered == 2, "%d", (int)fake.n_registered);
    CHECK_OK(sum_in_set("a", v + 1, v + 1, 3, 0));
    CHECK(v[1] == (float)size && fake.region_last == 1, "%g, region %d", (double)v[1],
          (int)fake.region_last);
    CHECK_OK(sum_in_set("b", w, w, COUNT, 0));
    CHECK(fake.region_last == 2, "%d", (int)fake.region_last);
    CHECK_OK(sum_in_set("c", w + 1, w + 9, 3, 0)); /* both in it */
    CHECK(fake.region_last == 2, "%d", (int)fake.region_last);
    CHECK_OK(sum_in_set("empty", rank == 0 ? v : NULL, rank == 0 ? v : NULL, 0, 0));
    if (rank == 0)
        CHECK_FAILS_AS(hvd_deregister(&size, 0), HVD_INVALID_ARGUMENT,
                       "hvd_deregister: data lies in no registered buffer of process "
                       "set 0");
    CHECK_OK(hvd_deregister(v + 7, 0));
    CHECK(fake.n_forgotten == 1, "%d", (int)fake.n_forgotten);
    CHECK_OK(sum_in_set("a", v + 1, v + 1, 3, 0));
    CHECK(fake.region_last == 0, "%d", (int)fake.region_last);
    CHECK_OK(register_now("one", v, COUNT,
                          0)); /* another number: the old one may be about */
    CHECK_OK(sum_in_set("a", v + 1, v + 1, 3, 0));
    CHECK(fake.region_last == 3, "%d", (int)fake.region_last);
    CHECK_OK(hvd_deregister_async(v, 0, &h));
    CHECK_OK(wait_release(h));
    CHECK(fake.n_forgotten == 2, "%d", (int)fake.n_forgotten);
    CHECK(hvd_deregister_async(v, 0, &h) == HVD_INVALID_ARGUMENT, "ok");
    CHECK(hvd_deregister_async(w, 0, NULL) == HVD_INVALID_ARGUMENT, "ok");
    CHECK_OK(hvd_shutdown());
    CHECK(fake.n_events == 0, "%d events are left", (int)fake.n_events);
}

UNIT_TEST(tensors_carry_the_buffer_they_lie_in)
{
    world_run(3, all_have_it);
    world_run(1, all_have_it);
}

INIT_TEST(a_buffer_is_its_process_set_s, 3)
{
    int ranks[] = {0, 2}, id;
    float *v = memory[0];

    CHECK_OK(hvd_process_set_add(ranks, 2, &id));
    if (rank != 1) {
        CHECK_OK(register_now("x", v, COUNT, id));
        CHECK_OK(sum_in_set("s", v, v, 5, id));
        CHECK(fake.region_last == 1, "%d", (int)fake.region_last);
    }
    CHECK_OK(sum_in_set("w", v, v, 5, 0)); /* of the world it is not known */
    CHECK(fake.region_last == 0, "%d", (int)fake.region_last);
    CHECK_OK(hvd_process_set_remove(id));
    CHECK(fake.n_forgotten == (rank != 1), "%d", (int)fake.n_forgotten);
    CHECK(hvd_deregister(v, id) == HVD_INVALID_ARGUMENT, "ok");
}

/* --- none has it --- */

INIT_TEST(what_one_cannot_none_has, 3)
{
    float *v = memory[0];

    if (rank == 1)
        fake.register_fails = "NCCL 2.18.4 has no ncclCommRegister";
    /* not the program's fault */
    CHECK_KEPT_AS(
        register_now("x", v, COUNT, 0), HVD_UNSUPPORTED,
        "tensor \"x\": its memory was not registered on any rank: rank 1 (host "
        "testhost) cannot: NCCL 2.18.4 has no ncclCommRegister");
    CHECK(fake.n_registered == (rank != 1) && fake.n_forgotten == (rank != 1),
          "%d registered, %d forgotten", (int)fake.n_registered, (int)fake.n_forgotten);
    v[0] = 1;
    CHECK_OK(sum_in_set("x", v, v, 4, 0)); /* the world is well */
    CHECK(v[0] == (float)size && fake.region_last == 0, "%g", (double)v[0]);
    fake.register_fails = NULL;
    CHECK_OK(register_now("x", v, COUNT, 0));
    CHECK_OK(sum_in_set("x", v, v, 4, 0));
    CHECK(fake.region_last == 1, "%d", (int)fake.region_last);
}

INIT_BODY(overlap_body)
{
    float *v = memory[0];

    CHECK_OK(register_now("x", v, 100, 0));
    CHECK_KEPT(register_now("y", rank == 0 ? v + 99 : v + 100, 100, 0),
               HVD_INVALID_ARGUMENT,
               "rank 0 (host testhost) cannot: it overlaps registered buffer 1");
}

/* Rank 0 has a tensor in it that the other rank has not submitted yet. */
INIT_BODY(is_pending)
{
    float *v = memory[0];
    int64_t n = 4;
    struct hvd_tensor t = on_gpu("early", HVD_FLOAT32, v + 8, v + 8, &n);
    hvd_handle h;

    if (rank == 0)
        CHECK_OK(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h));
    CHECK_KEPT(register_now("x", v, 100, 0), HVD_INVALID_ARGUMENT,
               "rank 0 (host testhost) cannot: tensor \"early\", which lies in "
               "it, is pending");
    if (rank > 0)
        CHECK_OK(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h));
    CHECK_OK(wait_release(h));
}

UNIT_TEST(memory_that_is_in_use_is_refused)
{
    world_run(2, overlap_body);
    world_run(2, is_pending);
}

/* --- what differs --- */

INIT_TEST(differences_between_ranks_are_reported, 2)
{
    float *v = memory[0], *w = memory[1];
    struct hvd_tensor j = {.size_bytes = sizeof(j), .name = "join"};
    hvd_handle h;

    CHECK_OK(register_now("x", v, 100, 0));
    CHECK_KEPT_AS(
        sum_in_set("t", rank == 1 ? w : v, rank == 1 ? w : v, 4, 0),
        HVD_INVALID_ARGUMENT,
        "Mismatched registered buffers: tensor \"t\": rank 0 has it in buffer "
        "1, rank 1 has it in none");
    CHECK_FAILS_AS(sum_in_set("u", v, w, 4, 0), HVD_INVALID_ARGUMENT,
                   "tensor \"u\": data lies in registered buffer 1, "
                   "output in 0 (0: in none): both must lie in the same one");
    CHECK_KEPT(register_now("z", w, 100 + rank, 0), HVD_INVALID_ARGUMENT,
               "Mismatched REGISTER tensor shapes");
    CHECK_OK(register_now("w", w, 100, 0));
    CHECK_FAILS(hvd_deregister(rank == 0 ? v : w, 0), HVD_INVALID_ARGUMENT,
                "rank 0 has 1, rank 1 has 2");
    if (rank == 1) { /* a joined rank has no memory there */
        CHECK_KEPT(sum_in_set("in", v, v, 4, 0), HVD_INVALID_ARGUMENT,
                   "Allreduce of registered buffers");
    }
    CHECK_OK(hvd_join_async(&j, &h));
    CHECK_OK(wait_release(h));
}

WORLD_TEST(what_is_no_buffer_is_refused_at_once, 1)
{
    float v[4] = {0};
    int64_t n = 4, none = 0;
    struct hvd_tensor t = tensor_1d("x", HVD_FLOAT32, v, NULL, &n);
    hvd_handle h;

    CHECK_OK(hvd_init(NULL));
    CHECK_FAILS(hvd_register_async(&t, 0, &h), HVD_INVALID_ARGUMENT,
                "only memory on a GPU can be registered");
    t = on_gpu("x", HVD_FLOAT32, v, NULL, &none);
    CHECK(hvd_register_async(&t, 0, &h) == HVD_INVALID_ARGUMENT, "ok");
    t = on_gpu("x", HVD_FLOAT32, NULL, NULL, &n);
    CHECK(hvd_register_async(&t, 0, &h) == HVD_INVALID_ARGUMENT, "ok");
    CHECK(hvd_deregister(v, -1) == HVD_INVALID_ARGUMENT, "ok");
    CHECK_OK(hvd_shutdown());
    CHECK(hvd_deregister(v, 0) == HVD_NOT_INITIALIZED, "ok");
}

/* Result memory that the caller gives may not be in one: it ends the world, for the
 * others' is in none. */
static void *result_alloc(void *arg, int ndim, const int64_t *shape, size_t bytes)
{
    (void)ndim;
    (void)shape;
    (void)bytes;
    return arg;
}

INIT_TEST(memory_of_a_result_is_not_in_one, 2)
{
    float *v = memory[0], w[8] = {0};
    int64_t n = 2;
    struct hvd_tensor t = on_gpu("g", HVD_FLOAT32, w, NULL, &n);
    hvd_handle h;

    CHECK_OK(register_now("x", v, 100, 0));
    CHECK_OK(hvd_allgather_async(&t, rank == 0 ? result_alloc : NULL, v + 90, 0, &h));
    if (wait_release(h) == HVD_OK)
        CHECK(sum_in_set("next", w, w, 1, 0) == HVD_ABORTED, "ok");
    CHECK(strstr(KEPT_TEXT,
                 "memory for its result lies in a registered buffer of rank 0"),
          "%s", KEPT_TEXT);
}

UNIT_MAIN(NULL, NULL)
