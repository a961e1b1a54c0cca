/* SPDX-License-Identifier: Apache-2.0 */
/* The one runtime of a process: at most one world at a time, handles that outlive it.
 */
#ifndef RUNTIME_API_RUNTIME_H
#define RUNTIME_API_RUNTIME_H

#include "runtime/api/exit_cause.h"
#include "runtime/api/handle.h"
#include "runtime/api/progress.h"
#include "runtime/world/world.h"

/* All return 0 or a negative enum hvd_status with its error text; any thread. */
int runtime_init(uint64_t start_timeout_ns,
                 const struct part_ranks *ranks,
                 const struct static_sets *sets,
                 struct err *err);
int runtime_shutdown(struct err *err);
/* The world, with a reference that runtime_put gives back. HVD_NOT_INITIALIZED
 * otherwise. */
int runtime_get(struct world **ret, struct err *err);
void runtime_put(struct world *w); /* accepts NULL */
bool runtime_is_forked(
    void); /* this is a child of a process that had called hvd_init */
struct handles *runtime_handles(void);
struct exit_cause *runtime_exit_cause(void);
struct progress *runtime_progress(void);
/* What another rank did that has ended the world; without a world: the last one. */
enum runtime_other { OTHER_CONTINUES, OTHER_IS_STOPPED, OTHER_HAS_FAILED };
enum runtime_other runtime_other(void);
/* The framework's own NCCL, from hvd_device_hint; "": none. Constant once a world
 * forms. */
const char *runtime_nccl_hint(void);
void runtime_set_nccl_hint(const char *path);

#endif
