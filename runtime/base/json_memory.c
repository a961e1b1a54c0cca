/* SPDX-License-Identifier: Apache-2.0 */
/* jansson's allocator has no argument for its user, so the state is global: one of the
 * allocation hooks, and each thread has its own. Called by operator/doc/json.c and
 * runtime/launch/trainer_json.c. */
#include "runtime/base/json_memory.h"

#include "runtime/base/wiped.h"

static _Thread_local bool is_out;

void json_memory_begin(void)
{
    is_out = false;
}

void *json_memory_alloc(size_t size_bytes)
{
    void *p = is_out ? NULL : wiped_alloc(size_bytes);

    is_out = !p;
    return p;
}

bool json_memory_is_out(void)
{
    return is_out;
}
