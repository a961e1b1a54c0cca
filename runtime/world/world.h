/* SPDX-License-Identifier: Apache-2.0 */
/* One world: from the launch contract to connected ranks, and back to nothing. */
#ifndef RUNTIME_WORLD_WORLD_H
#define RUNTIME_WORLD_WORLD_H

#include <stdatomic.h>

#include "runtime/engine/coordinator.h"
#include "runtime/world/part.h"
#include "runtime/world/sets.h"
#include "runtime/contract/contract.h"
#include "runtime/rendezvous/rendezvous.h"

struct forming;
struct bootstrap;
struct membership;

struct world {
    _Atomic uint32_t refs; /* of runtime.c: one while it is the current world */
    /* Constant once formed. */
    struct contract contract; /* its place is that in this world */
    struct place job;         /* the place in the whole job */
    struct part part;
    struct settings settings;
    struct token token;
    struct control_member *members; /* by rank */
    bool is_homogeneous;
    char local_addr[64];
    struct backend_env env;
    struct backend *backend;
    struct sets sets;
    struct control *control;
    struct coordinator *co;
    struct forming *forming; /* while it forms */
    bool is_connected;       /* before its coordinator starts, whose thread reads it */
    struct membership *membership; /* kept_state's; NULL: the job is not elastic */
    /* A member is in its first world. The same on all ranks. */
    bool has_new;
    uint64_t start_deadline_ns; /* start timeout: the world must have formed by then */
    _Atomic bool is_changing_sets; /* some thread is in world_set_add or _remove */
    bool is_leaked;                /* its thread hangs: control and backend stay open */
};

/* What is kept from one world to the next. */
struct kept_state {
    /* Rank 0's own rendezvous server if the launcher has none. It outlives worlds: a
     * rank that starts its next world may be ahead of rank 0. */
    struct rdv_server *server;
    int claim_fd;           /* claim.h */
    bool has_warned;        /* about a launcher without a secret */
    bool has_logged_unused; /* variables without effect were logged */
    bool has_token; /* of HVD_TOKEN_FD, which can be read once only, or the channel's */
    struct token token;
    /* Read once from the launcher's channel; it outlives worlds, as the server does. */
    bool has_tried, has_found;
    struct contract found;
    struct bootstrap *boot; /* for bootstrap_finish at the process' exit */
    bool has_listener;      /* rank 0's, until its server takes it */
    int listen_fd;
    /* The last rendezvous server, and how many rounds it has seen. */
    char host[HOST_NAME_MAX_BYTES];
    uint16_t port;
    uint32_t size, generation,
        n_rounds;              /* of the world of all ranks; of other worlds: parts */
    struct part_rounds *parts; /* owned */
    size_t n_parts, cap_parts;
    struct device_park park; /* what the last world left on the GPUs */
    struct membership
        *membership; /* NULL: the job is not elastic, or hvd_init is new */
    bool has_formed; /* hvd_init has succeeded before; set by runtime.c */
};

struct world_config {
    uint64_t start_timeout_ns; /* 0: the value of the settings */
    const struct part_ranks *ranks;
    const char *nccl_hint; /* as coordinator_config's, both */
    void (*report_late)(const char *tensor);
};

/* Blocks until all ranks are connected or the time is over. In an elastic job a world that
 * does not form is followed by the next one, up to a number of times. */
int world_form(const struct world_config *config,
               struct kept_state *kept,
               struct world **ret,
               struct err *err);
/* Process sets. Blocking; not in callbacks; all ranks of the world call them in the
 * same order, or, SET_BY_MEMBERS, those of the new set. 0, or a negative enum
 * hvd_status with its error text. */
int world_set_add(struct world *w,
                  const int *ranks, /* any order */
                  int n,
                  enum set_callers callers,
                  uint64_t deadline_ns,
                  int *ret_id,
                  struct err *err);
int world_set_remove(struct world *w, int id, struct err *err);
struct static_sets { /* as in hvd_config; the caller's */
    int n;
    const int *sizes, *ranks;
};
int world_add_static_sets(struct world *w,
                          const struct static_sets *s,
                          struct err *err);
void world_free(
    struct world *w); /* after coordinator_leave; accepts half-built ones and NULL */

#endif
