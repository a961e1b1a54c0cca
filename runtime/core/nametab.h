/* SPDX-License-Identifier: Apache-2.0 */
/* Hash table keyed by process set and tensor name. Intrusive: the node sits inside the
 * caller's object, so that an entry costs one allocation and removal none. Pure; no
 * lock of its own. */
#ifndef RUNTIME_CORE_NAMETAB_H
#define RUNTIME_CORE_NAMETAB_H

#include <stddef.h>
#include <stdint.h>

struct nametab_node {
    struct nametab_node *next; /* the table's */
    const char *name;          /* the owner's; must not change while in the table */
    uint32_t set;              /* likewise */
    uint32_t hash;             /* the table's */
};

struct nametab { /* zeroed: empty */
    struct nametab_node **v;
    size_t n_buckets, n;
};

void nametab_release(struct nametab *t); /* the nodes stay with their owners */
/* node->name and node->set are set by the caller. 0, -EEXIST, -ENOMEM. */
int nametab_add(struct nametab *t, struct nametab_node *node);
struct nametab_node *
nametab_find(const struct nametab *t, uint32_t set, const char *name);
void nametab_remove(struct nametab *t, struct nametab_node *node); /* must be in it */

/* For error messages: the name in quotes, with the middle of a long one left out. buf
 * has NAME_SHOWN_MAX bytes; returns buf. */
#define NAME_SHOWN_MAX 128
const char *name_shown(const char *name, char *buf);

#endif
