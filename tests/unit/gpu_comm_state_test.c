/* SPDX-License-Identifier: Apache-2.0 */
/* The states of a communicator, edge by edge: existing edges, and all others. */
#include "runtime/backend/nccl/comm_state.h"
#include "tests/unit/unit.h"

/* One row a state, one column an event: init split group ok stop close revoke ended.
 * '.' is no edge; letters are states, in their order: n s r e p c v k a d. */
static const char letters[] = "nsrepcvkad";
static const char *const want[COMM_STATE_COUNT] = {
    [COMM_NEW] = "s...d...",       [COMM_STARTING] = "...ra...",
    [COMM_READY] = ".pe.acv.",     [COMM_ENQUEUING] = "...ra...",
    [COMM_SPLITTING] = "...ra...", [COMM_CLOSING] = "....a..d",
    [COMM_REVOKING] = "...ka...",  [COMM_PARKED] = "c...a...",
    [COMM_ABORTING] = ".......d",  [COMM_DEAD] = "........",
};

UNIT_TEST(each_edge_and_no_other)
{
    for (int s = 0; s < COMM_STATE_COUNT; s++)
        for (int e = 0; e < COMM_EVENT_COUNT; e++) {
            const char *l = strchr(letters, want[s][e]);
            int to = want[s][e] == '.' ? -1 : (int)(l - letters);

            if (comm_next((enum comm_state)s, (enum comm_event)e) != to)
                print_error("%s, event %d\n", comm_state_name((enum comm_state)s), e);
            assert_int_equal(comm_next((enum comm_state)s, (enum comm_event)e), to);
        }
}

UNIT_TEST(values_out_of_range_lead_nowhere)
{
    assert_int_equal(comm_next(COMM_STATE_COUNT, COMM_EV_OK), -1);
    assert_int_equal(comm_next(COMM_READY, COMM_EVENT_COUNT), -1);
    assert_string_equal(comm_state_name(COMM_STATE_COUNT), "?");
}

/* Only what NCCL holds can be aborted, and all of it. */
UNIT_TEST(what_is_held_can_be_aborted)
{
    for (int s = 0; s < COMM_STATE_COUNT; s++)
        assert_int_equal(comm_is_held((enum comm_state)s),
                         s == COMM_ABORTING
                             || comm_next((enum comm_state)s, COMM_EV_STOP)
                                    == COMM_ABORTING);
}

UNIT_MAIN(NULL, NULL)
