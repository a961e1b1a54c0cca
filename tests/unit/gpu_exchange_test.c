/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges of more members than one group of calls holds: an alltoall of each member
 * runs over an NCCL of a few functions here, which records the calls; the calls of all
 * members together must be able to finish. */
#include "runtime/backend/nccl/exchange.h"
#include "runtime/backend/nccl/gcoll.h"
#include "runtime/base/mem.h"
#include "tests/unit/unit.h"

enum { N = 1100, ITEMS = 3, NO = 255 };

struct made { /* group of the call, or NO */
    uint8_t send[ITEMS][N], recv[ITEMS][N];
};

static struct {
    struct made *of; /* [N] */
    uint32_t me;
    uint8_t group;
    unsigned n_calls;                 /* of this group */
    uint8_t seen_to[N], seen_from[N]; /* items with this member, so far */
    uint64_t send_at[ITEMS][N], recv_at[ITEMS][N];
} fake;

/* Of tensor `item` from s to d: a third has none, members differ in how many. */
static uint64_t part_bytes(size_t item, uint32_t s, uint32_t d)
{
    const uint32_t x = (s * 31 + d * 17 + (uint32_t)item * 7) % 12;

    return s == d ? 0 : x < s % 9 ? 0 : x + 1;
}

static int group_start(void)
{
    fake.n_calls = 0;
    return NCCL_OK;
}

static int group_end(void)
{
    assert_in_range(fake.n_calls, 1, GCOLL_MAX_CALLS);
    fake.group++;
    return NCCL_OK;
}

/* The next tensor that has a part from s to d. */
static size_t next_item(uint8_t *seen, uint32_t s, uint32_t d)
{
    while (part_bytes(*seen, s, d) == 0)
        ++*seen;
    return (*seen)++;
}

static int
send_to(const void *p, size_t n, int dtype, int peer, nccl_comm nc, cu_stream s)
{
    uint8_t *seen = &fake.seen_to[peer];
    const size_t item = next_item(seen, fake.me, (uint32_t)peer);

    assert_int_equal((uintptr_t)p, fake.send_at[item][peer]);
    assert_int_equal(n, part_bytes(item, fake.me, (uint32_t)peer));
    fake.of[fake.me].send[item][peer] = fake.group;
    fake.n_calls++;
    return NCCL_OK;
}

static int recv_from(void *p, size_t n, int dtype, int peer, nccl_comm nc, cu_stream s)
{
    uint8_t *seen = &fake.seen_from[peer];
    const size_t item = next_item(seen, (uint32_t)peer, fake.me);

    assert_int_equal((uintptr_t)p, fake.recv_at[item][peer]);
    assert_int_equal(n, part_bytes(item, (uint32_t)peer, fake.me));
    fake.of[fake.me].recv[item][peer] = fake.group;
    fake.n_calls++;
    return NCCL_OK;
}

static void run_member(struct device *g, struct batch *b, uint32_t me)
{
    struct comm c = {.g = g, .me = me, .n = N, .n_nc = 1, .state = COMM_READY};
    struct gcoll_post p = {.c = &c, .g = g, .batch = b};
    struct batch_item items[ITEMS];
    AUTOFREE uint64_t *counts = mem_calloc((size_t)2 * ITEMS * N, sizeof(*counts));
    struct err err = ERR_INIT;

    for (size_t i = 0; i < ITEMS; i++) {
        uint64_t *send = counts + 2 * i * N, *recv = send + N;
        uint64_t from = (i + 1) << 20, to = (i + 100) << 20;

        items[i] = (struct batch_item){
            .in = (void *)from, .out = (void *)to, .counts = recv, .send_counts = send};
        for (uint32_t j = 0; j < N; j++) {
            fake.send_at[i][j] = from;
            fake.recv_at[i][j] = to;
            from += send[j] = part_bytes(i, me, j);
            to += recv[j] = part_bytes(i, j, me);
        }
    }
    b->items = items;
    fake.me = me;
    fake.group = 0;
    memset(fake.seen_to, 0, sizeof(fake.seen_to));
    memset(fake.seen_from, 0, sizeof(fake.seen_from));
    memset(&fake.of[me], NO, sizeof(fake.of[me]));
    assert_int_equal(gcoll_move(&p, &err), 0);
    assert_int_equal(fake.group, (ITEMS * (N - 1) + 1023) / 1024);
}

UNIT_TEST(calls_of_a_pair_are_in_the_same_group)
{
    const struct nccl_api nccl = {.group_start = group_start,
                                  .group_end = group_end,
                                  .send = send_to,
                                  .recv = recv_from};
    struct device *g = test_calloc(1, sizeof(*g));
    struct batch b = {
        .coll = COLL_ALLTOALL, .place = PLACE_CUDA, .dtype = DT_U8, .n_items = ITEMS};

    g->nccl = &nccl;
    fake.of = test_calloc(N, sizeof(*fake.of));
    for (uint32_t me = 0; me < N; me++)
        run_member(g, &b, me);
    for (size_t i = 0; i < ITEMS; i++)
        for (uint32_t s = 0; s < N; s++)
            for (uint32_t d = 0; d < N; d++) {
                const uint8_t group = fake.of[s].send[i][d];

                assert_int_equal(group, fake.of[d].recv[i][s]);
                assert_int_equal(group == NO, part_bytes(i, s, d) == 0);
            }
    test_free(fake.of);
    test_free(g);
}

UNIT_MAIN(NULL, NULL)
