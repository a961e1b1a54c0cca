/* SPDX-License-Identifier: Apache-2.0 */
/* The slots of an elastic job: what they have, and which may have a process. Pure.
 * elastic_offer_slots is in elastic.h. */
#ifndef RUNTIME_LAUNCH_CORE_ELASTIC_SLOTS_H
#define RUNTIME_LAUNCH_CORE_ELASTIC_SLOTS_H

#include "runtime/launch/core/elastic.h"

/* It has a process that has not ended. */
bool slot_is_live(const struct elastic_slot *s);
/* Its process has ended. */
void slot_empty(struct elastic_slot *s);
/* For a time that doubles each time, up to exclude_max_ns. */
void slot_exclude(struct elastic_slot *s,
                  const struct elastic_config *c,
                  uint64_t now_ns);

/* [config.slots]; NULL: there is no such worker. */
struct elastic_slot *elastic_worker_slots(const struct elastic *e, uint32_t worker);
/* The slot, if it has this process. */
struct elastic_slot *
elastic_find(const struct elastic *e, uint32_t slot, uint32_t incarnation);
/* Slots in this state; not those whose process is being stopped. */
uint32_t elastic_count(const struct elastic *e, enum slot_state state);
/* Processes in the states from STARTING to last that stay: none that is being stopped, and
 * none in a slot that is drained. */
uint32_t elastic_count_live(const struct elastic *e, enum slot_state last);
bool elastic_has_member(const struct elastic *e);
/* Each slot that the worker offers is excluded, and it offers one at least. */
bool elastic_is_useless(const struct elastic *e, uint32_t worker);
/* Ends the exclusions whose time is over. */
void elastic_expire(struct elastic *e, uint64_t now_ns);

#endif
