/* SPDX-License-Identifier: Apache-2.0 */
/* How an elastic job ends after a first process has ended with success. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_ELASTIC_FINISH_H
#define RUNTIME_LAUNCH_CORE_ELASTIC_FINISH_H

#include "runtime/launch/core/elastic.h"

enum elastic_finish {
    FINISH_WAIT,  /* for processes that run, or for hosts */
    FINISH_START, /* *ret_slot */
    FINISH_END,   /* well, unless e->why says why not */
};
enum elastic_finish
elastic_finish(struct elastic *e, uint64_t now_ns, uint32_t *ret_slot);

#endif
