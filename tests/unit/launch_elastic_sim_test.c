/* SPDX-License-Identifier: Apache-2.0 */
/* elastic.c in thousands of simulated jobs (tests/lib/crew.h). SIM_SEEDS sets how many,
 * SIM_SEED runs one. */
#include "runtime/base/mem.h"
#include "tests/lib/crew.h"
#include "tests/unit/unit.h"

#define SEEDS     10000
#define BUG_SEEDS 5000

static uint64_t from_env(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text ? strtoull(text, NULL, 10) : otherwise;
}

static bool crew_try(uint64_t seed, enum bug bug, bool is_loud, uint32_t *ret_faults)
{
    struct crew *c = mem_alloc(sizeof(*c));
    bool is_good;

    assert_non_null(c);
    crew_begin(c, seed, bug);
    crew_run(c);
    is_good = !c->fault[0];
    if (!is_good && is_loud)
        print_message("# SIM_SEED=%llu: %.1f s: %s\n", (unsigned long long)seed,
                      c->now / (double)SECONDS, c->fault);
    *ret_faults += c->n_faults;
    if (c->has_leader)
        elastic_release(&c->leader);
    mem_free(c);
    return is_good;
}

UNIT_TEST(jobs_survive_every_fault)
{
    const uint64_t one = from_env("SIM_SEED", 0), n = from_env("SIM_SEEDS", SEEDS);
    uint32_t n_bad = 0, n_faults = 0;

    for (uint64_t seed = one ? one : 1; seed <= (one ? one : n) && n_bad < 40; seed++)
        n_bad += !crew_try(seed, BUG_NONE, true, &n_faults);
    print_message("# %u faults\n", n_faults);
    assert_int_equal(n_bad, 0);
}

UNIT_TEST(planted_bugs_are_caught)
{
    for (enum bug bug = BUG_NONE + 1; bug < BUG_LAST; bug++) {
        uint32_t n_faults = 0;
        uint64_t seed = 1;

        while (seed <= BUG_SEEDS && crew_try(seed, bug, false, &n_faults))
            seed++;
        print_message("# bug %d: seed %llu\n", (int)bug, (unsigned long long)seed);
        assert_true(seed <= BUG_SEEDS);
    }
}

UNIT_MAIN(NULL, NULL)
