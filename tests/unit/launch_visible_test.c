/* SPDX-License-Identifier: Apache-2.0 */
/* visible.c: CUDA_VISIBLE_DEVICES in every form that CUDA, a device plugin or Slurm
 * writes, and the ranks that follow from it. */
#include "runtime/launch/core/visible.h"
#include "tests/unit/launch_fixture.h"

static const char *const uuids[] = {"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
                                    "GPU-8932aaaa-0000-0000-0000-000000000001",
                                    "GPU-0cbb2a44-1111-1111-1111-111111111111",
                                    ""}; /* not NVIDIA's */

static void make_host(struct topology *t, size_t n)
{
    memset(t, 0, sizeof(*t));
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(t->gpus[i].name, sizeof(t->gpus[i].name), "gpu%zu", i);
        (void)snprintf(t->gpus[i].uuid, sizeof(t->gpus[i].uuid), "%s", uuids[i]);
        t->gpus[i].node = (int32_t)i;
        t->gpus[i].is_up = true;
    }
    t->n_gpus = n;
}

static const char *gpu_names(const struct topology *t, char *ret, size_t size_bytes)
{
    size_t n = 0;

    ret[0] = '\0';
    for (size_t i = 0; i < t->n_gpus; i++)
        n += (size_t)snprintf(ret + n, size_bytes - n, "%s%s:%d", i ? " " : "",
                              t->gpus[i].name, t->gpus[i].node);
    return ret;
}

UNIT_TEST(lists_are_read_as_cuda_reads_them)
{
    static const struct {
        size_t n;
        const char *list, *seen; /* name:node of each */
    } table[] = {
        /* numbers */
        {4, "0,1,2,3", "gpu0:0 gpu1:1 gpu2:2 gpu3:3"},
        {4, "3,1", "gpu3:3 gpu1:1"},
        {4, "2", "gpu2:2"},
        {4, " 2, 0 ", "gpu2:2 gpu0:0"},
        {4, "0,", "gpu0:0"},
        /* what names nothing ends the list */
        {4, "", ""},
        {4, "-1", ""},
        {4, "none", ""},
        {4, "NoDevFiles", ""},
        {4, "0,-1,1", "gpu0:0"},
        {4, "0,4,1", "gpu0:0"},
        {4, "0,,1", "gpu0:0"},
        {4, "0,1x,2", "gpu0:0"},
        {4, "99999999999999999999", ""},
        {0, "0", ""},
        /* UUIDs, and beginnings that only one has */
        {4, "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "gpu0:0"},
        {4, "GPU-8932F937", "gpu0:0"},
        {4, "GPU-8932a,GPU-0", "gpu1:1 gpu2:2"},
        {4, "GPU-0,2,GPU-8932f", "gpu2:2 gpu2:2 gpu0:0"},
        {4, "GPU-8932", ""},
        {4, "0,GPU-8932,1", "gpu0:0"},
        {4, "GPU-", ""},
        {1, "GPU-", ""},
        {4, "GPU-7", ""},
        {4, "gpu-0cbb", ""},
        /* MIG instances: where their GPU is known, they are there */
        {4, "MIG-GPU-0cbb2a44-1111-1111-1111-111111111111/1/0",
         "MIG-GPU-0cbb2a44-1111-1111-1111-111111111111/1/0:2"},
        {4, "MIG-GPU-8932f937/1/0,MIG-GPU-8932f937/2/0",
         "MIG-GPU-8932f937/1/0:0 MIG-GPU-8932f937/2/0:0"},
        {4, "MIG-GPU-8932/1/0", ""},
        {4, "MIG-GPU-8932f937", ""},
        {4, "MIG-GPU-7/1/0,0", ""},
        {4, "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f,MIG-00,1",
         "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f:-1 MIG-00:-1 gpu1:1"},
        {1, "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f",
         "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f:0"},
        {4, "MIG-", ""},
        {4, "MIG-xyz", ""},
        {4, "0,MIG-xyz,1", "gpu0:0"},
    };
    struct topology t;
    char text[512];

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        make_host(&t, table[i].n);
        visible_keep(&t, table[i].list);
        assert_string_equal(gpu_names(&t, text, sizeof(text)), table[i].seen);
    }
}

UNIT_TEST(a_long_list_is_cut)
{
    struct topology t;
    char list[4096];
    size_t n = 0;

    for (int i = 0; i < 200; i++)
        n += (size_t)snprintf(list + n, sizeof(list) - n, "MIG-0123,");
    make_host(&t, 4);
    visible_keep(&t, list);
    assert_int_equal(t.n_gpus, TOPOLOGY_MAX_DEVICES);
}

/* A mask of one for each rank, as Slurm or a device plugin gives: the rank's snapshot
 * has one GPU, and it is its local rank 0's. More ranks than GPUs: the rest has none.
 */
UNIT_TEST(ranks_follow_from_what_is_seen)
{
    static const struct {
        const char *list;
        uint32_t n_ranks;
        int32_t gpu[4];
    } table[] = {{"0,1,2,3", 4, {0, 1, 2, 3}},
                 {"2", 2, {0, -1, 0, 0}},
                 {"MIG-00,MIG-01", 3, {0, 1, -1, 0}},
                 {"", 2, {-1, -1, 0, 0}}};
    struct topology t;
    struct binding_plan p;
    struct err err = ERR_INIT;

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        make_host(&t, 4);
        visible_keep(&t, table[i].list);
        assert_int_equal(binding_plan(&t, BINDING_NONE, table[i].n_ranks, &p, &err), 0);
        for (uint32_t k = 0; k < table[i].n_ranks; k++)
            assert_int_equal(p.gpu[k], table[i].gpu[k]);
        binding_plan_release(&p);
    }
}

UNIT_MAIN(NULL, NULL)
