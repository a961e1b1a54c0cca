/* SPDX-License-Identifier: Apache-2.0 */
/* The worlds of one job at one server: the world of all ranks, and one for each list of
 * ranks that members have joined with. Pure; used by the server's thread only. */
#ifndef RUNTIME_RENDEZVOUS_PARTS_H
#define RUNTIME_RENDEZVOUS_PARTS_H

#include "runtime/rendezvous/world.h"

#define RDV_PARTS_MAX 4096u /* different lists in the lifetime of a server */

/* The world that a member joins, created by the first member of its list, and its place
 * in it. -EINVAL: not of this job, or an invalid list; -E2BIG, -ENOMEM. */
int rdv_parts_find(struct rdv_world *all,
                   const struct rdv_join *join,
                   struct rdv_world **ret,
                   uint32_t *ret_place,
                   struct err *err);
/* After this member has put in w: a world in which a rank waits for this member while
 * this member waits for that rank in w. Neither world can ever be full; text names both
 * ranks and lists. NULL: none. */
struct rdv_world *rdv_parts_clash(struct rdv_world *all,
                                  const struct rdv_world *w,
                                  uint32_t place,
                                  char *text,
                                  size_t size_bytes);
void rdv_parts_release(struct rdv_world *all); /* all parts; not all itself */

#endif
