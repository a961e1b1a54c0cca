/* SPDX-License-Identifier: Apache-2.0 */
/* The worlds of one job at one server: that of all ranks, and one for each list of
 * ranks that some of them have asked for. Pure; used by the server's thread only. */
#ifndef RUNTIME_RENDEZVOUS_PARTS_H
#define RUNTIME_RENDEZVOUS_PARTS_H

#include "runtime/rendezvous/world.h"

#define RDV_PARTS_MAX 4096u /* different lists in the life of a server */

/* The world that a member asks for, made when it is the first, and its place there.
 * -EINVAL: not of this job, or no list of its ranks; -E2BIG, -ENOMEM. */
int rdv_parts_find(struct rdv_world *all,
                   const struct rdv_join *join,
                   struct rdv_world **ret,
                   uint32_t *ret_place,
                   struct err *err);
/* After this member has put in w: a world in which somebody waits for it while it waits
 * here for that one. Neither can ever be full; text says who asks for what. NULL: none.
 */
struct rdv_world *rdv_parts_clash(struct rdv_world *all,
                                  const struct rdv_world *w,
                                  uint32_t place,
                                  char *text,
                                  size_t size_bytes);
void rdv_parts_release(struct rdv_world *all); /* but all itself */

#endif
