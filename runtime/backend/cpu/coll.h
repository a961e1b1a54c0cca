/* SPDX-License-Identifier: Apache-2.0 */
/* One batch, from its items to the transports: what the files of the collectives share;
 * only for this folder. */
#ifndef RUNTIME_BACKEND_CPU_COLL_H
#define RUNTIME_BACKEND_CPU_COLL_H

#include "runtime/backend/cpu/cpu.h"

/* --- coll_steps.c --- */

/* Makes room for n pieces; the content is undefined. */
int coll_room(struct cpu *c, size_t n, struct err *err);
static inline bool coll_is_leader(const struct cpu *c)
{
    return c->local == 0;
}
/* The position of member r in cpu.order. */
static inline uint32_t coll_place(const struct cpu *c, uint32_t r)
{
    return c->host_start[c->host_of[r]] + c->local_of[r];
}
/* Temporary memory of a leader for data that passes through it: n bytes, NULL: none. */
uint8_t *coll_scratch(uint64_t n, const char *what, struct err *err);
/* From now on the result is the input of the next step. */
void coll_in_is_out(struct piece *p, size_t n);
/* The reduction of a batch; -EINVAL with an error message: not supported. */
int coll_reduction(const struct cpu *c,
                   const struct batch *b,
                   struct reduction *ret,
                   struct err *err);
/* v.out = postscale * prescale * v.in, alone. */
void coll_scale(const struct vec *v, const struct reduction *r);
/* Reduces on each host into the leader's v.out, without postscale; prescaling is done
 * here where some hosts have several members, so that all leaders agree on it. Every
 * member of such a host calls it; the remaining reduction is *ret. */
int coll_reduce_on_host(struct cpu *c,
                        const struct vec *v,
                        const struct reduction *r,
                        struct reduction *ret,
                        struct err *err);
/* Whether that puts anything into the leader's v.out; otherwise leaders exchange in. */
bool coll_reduces_on_host(const struct cpu *c, const struct reduction *r);
/* Rows from to to of a table of n_items pieces a row. */
struct vec coll_rows(const struct cpu *c, size_t n_items, uint32_t from, uint32_t to);
/* On this host, member `from` (its index there) sends its vector's in to member `to`'s
 * out; the other members only take part. Sizes are equal on both. */
int coll_pass(
    struct cpu *c, uint32_t from, uint32_t to, const struct vec *v, struct err *err);

/* --- coll_gather.c: rows of the piece table, one a member, ordered host by host
 * (cpu.order), n pieces each: in is used of our own, out is where a row belongs. */
int coll_allgather_rows(struct cpu *c, size_t n, struct err *err);

/* --- one function per collective, by file --- */
int coll_allgather(struct cpu *c, const struct batch *b, struct err *err);
int coll_gather(struct cpu *c, const struct batch *b, struct err *err);
int coll_reduce_scatter(struct cpu *c, const struct batch *b, struct err *err);
int coll_alltoall(struct cpu *c, const struct batch *b, struct err *err);
int coll_adasum(struct cpu *c, const struct batch *b, struct err *err);

#endif
