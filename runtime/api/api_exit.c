/* SPDX-License-Identifier: Apache-2.0 */
/* hvd_set_exit_cause and hvd_ended_by_other: how a program's failure reaches the other
 * ranks, and how a program learns that another rank has failed (exit_cause.h). */
#include "runtime/api/api.h"

#include "runtime/contract/failure.h"

_Static_assert(HVD_EXIT_OTHER_RANK == FAILURE_OTHER_RANK, "as launchers know it");

int hvd_set_exit_cause(const char *text, int exit_code)
{
    struct err *err = api_fresh_error();

    if (exit_code < 0 || exit_code > 255)
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "hvd_set_exit_cause: exit_code is %d, 0 to 255 is allowed",
                       exit_code);
    exit_cause_set(runtime_exit_cause(), text, exit_code);
    return HVD_OK;
}

int hvd_ended_by_other(void)
{
    return runtime_other() != OTHER_CONTINUES;
}
