/* SPDX-License-Identifier: Apache-2.0 */
/* A request for the tests of core/. */
#ifndef TESTS_UNIT_CORE_REQUEST_H
#define TESTS_UNIT_CORE_REQUEST_H

#include "runtime/base/mem.h"
#include "runtime/core/message.h"
#include "tests/unit/unit.h"

/* Of 2 x 3 floats; operations without a tensor have no dimensions. */
static inline struct tensor_request request_make(enum collective coll, const char *name)
{
    struct tensor_request r = {.coll = coll,
                               .dtype = DT_F32,
                               .op = OP_SUM,
                               .prescale = 1,
                               .postscale = 1,
                               .ndim = 2,
                               .shape = {2, 3}};

    if (coll == COLL_BARRIER || coll == COLL_JOIN || coll == COLL_SET_ADD
        || coll == COLL_SET_REMOVE || coll == COLL_PROBE)
        r.ndim = 0;
    (void)snprintf(r.name, sizeof(r.name), "%s", name);
    return r;
}

#endif
