/* SPDX-License-Identifier: Apache-2.0 */
/* Which communicator of a failed world is kept, and what becomes of it: over an NCCL of
 * one function here. hvdgpu_park_test lets worlds fail and shrinks what they kept. */
#include "runtime/backend/nccl/futex.h"
#include "runtime/backend/nccl/park.h"
#include "tests/unit/gpu_fake.h"

static atomic_uint n_aborted;
static int handle; /* stands for an NCCL communicator */

static int count_abort(nccl_comm nc)
{
    assert_ptr_equal(nc, &handle);
    n_aborted++;
    return NCCL_OK;
}

static int never_called(void)
{
    abort();
}

static struct nccl_api nccl;
static struct device *g;
static struct comm c, other;

/* A device whose only communicator can be kept. */
static int park_start(void **state)
{
    nccl = (struct nccl_api){.version = NCCL_PARKS, .abort = count_abort};
    *(void **)&nccl.revoke = *(void **)&nccl.shrink = (void *)(uintptr_t)never_called;
    g = test_calloc(1, sizeof(*g));
    g->nccl = &nccl;
    g->config.size = 3;
    g->comms = &c;
    c = (struct comm){.g = g, .me = 1, .n = 3, .n_nc = 1, .state = COMM_PARKED};
    c.nc[0] = (nccl_comm)(void *)&handle;
    memset(c.id, 7, sizeof(c.id));
    n_aborted = 0;
    return 0;
}

static int park_end(void **state)
{
    test_free(g);
    return 0;
}

/* Children's abort would reach it by what they share with it; registered memory goes
 * with the world. */
UNIT_TEST_WITH(only_the_single_communicator_of_a_world_is_kept, park_start, park_end)
{
    static struct comm_region region;

    assert_true(park_wants(g, &c));
    nccl.version--;
    assert_false(park_wants(g, &c));
    nccl.version++;
    c.next = &other;
    assert_false(park_wants(g, &c));
    c.next = NULL;
    g->comms = &other;
    assert_false(park_wants(g, &c));
    g->comms = &c;
    c.n = 2;
    assert_false(park_wants(g, &c));
    c.n = 3;
    c.n_nc = 2;
    assert_false(park_wants(g, &c));
    c.n_nc = 1;
    c.regions = &region;
    assert_false(park_wants(g, &c));
    c.regions = NULL;
    c.fusion[0].handles[0] = &region;
    assert_false(park_wants(g, &c));
    c.fusion[0].handles[0] = NULL;
    nccl.shrink = NULL;
    assert_false(park_wants(g, &c));
}

UNIT_TEST_WITH(what_was_kept_is_claimed_by_the_card_or_aborted, park_start, park_end)
{
    struct gpu_card card = {0};

    struct device_parked *p = park_take(g);
    assert_non_null(p);
    assert_null(c.nc[0]);
    park_fill(p, &card);
    assert_memory_equal(card.parked_id, c.id, sizeof(c.id));
    assert_int_equal(card.parked_rank, 1);
    assert_int_equal(card.parked_size, 3);
    assert_int_equal(n_aborted, 0);
    park_free(p); /* claimed, and not used */
    WAIT_UNTIL(n_aborted == 1);
    park_free(NULL);
    c.state = COMM_DEAD;
    assert_null(park_take(g));
}

UNIT_TEST_WITH(what_is_kept_too_long_is_aborted, park_start, park_end)
{
    struct gpu_card card = {0};

    struct device_parked *p = park_take(g);
    assert_non_null(p);
    atomic_store(&p->until_ns, 1);
    futex_wake(&p->state);
    WAIT_UNTIL(n_aborted == 1);
    park_fill(p, &card);
    assert_int_equal(card.parked_size, 0);
    park_free(p);
    assert_int_equal(n_aborted, 1);
}

UNIT_MAIN(NULL, NULL)
