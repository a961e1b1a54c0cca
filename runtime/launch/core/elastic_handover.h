/* SPDX-License-Identifier: Apache-2.0 */
/* All processes that have the state of an elastic job are in slots that are drained: one of
 * them stays until a process in another slot has the state too. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_ELASTIC_HANDOVER_H
#define RUNTIME_LAUNCH_CORE_ELASTIC_HANDOVER_H

#include "runtime/launch/core/elastic.h"

/* Begins the handover if it is needed, and ends it if it is not, or after 60 s. */
void elastic_serve_handover(struct elastic *e, uint64_t now_ns);
/* The current world stays until a process is ready to which the state can be given. */
bool elastic_waits_for_successor(const struct elastic *e);
/* This process, in a slot that is drained, is in the next world, to give its state. */
bool elastic_keeps(const struct elastic *e, const struct elastic_slot *s);
/* A world has formed: the time of a handover starts again. */
void elastic_restart_handover(struct elastic *e);

#endif
