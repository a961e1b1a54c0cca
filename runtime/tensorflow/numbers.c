/* SPDX-License-Identifier: Apache-2.0 */
/* numbers.c: which numbers of eager operations without a name are in use.
 *
 * The lowest free number is part of the name. A program with one such operation at a
 * time always uses the same name, so the runtime's cache recognises it. Each process
 * set counts separately: operations of a rank in another set must not change a name.
 *
 * The one mutable global: a list that only grows, by one entry for each kind of
 * operation in each process set that ever had one. Called by kernel.c and job.c. */
#include "runtime/tensorflow/numbers.h"

#include <stdatomic.h>
#include <stdlib.h>

struct numbers {
    struct numbers *next;
    const void *kind;
    int32_t process_set;
    _Atomic uint64_t busy; /* one bit each */
};

static _Atomic(struct numbers *) all;

struct numbers *numbers_of(const void *kind, int32_t process_set)
{
    struct numbers *made = NULL, *n;
    /* acquire: pairs with the exchange, which shows an entry in full */
    struct numbers *first = atomic_load_explicit(&all, memory_order_acquire);

    for (;;) {
        for (n = first; n; n = n->next)
            if (n->kind == kind && n->process_set == process_set)
                break;
        if (n) {
            free(made); /* another thread was faster */
            return n;
        }
        if (!made)
            made = calloc(1, sizeof(*made));
        if (!made)
            return NULL;
        made->next = first;
        made->kind = kind;
        made->process_set = process_set;
        if (atomic_compare_exchange_strong_explicit(
                &all, &first, made, memory_order_acq_rel, memory_order_acquire))
            return made;
    }
}

int numbers_take(struct numbers *n)
{
    uint64_t seen = atomic_load_explicit(&n->busy, memory_order_relaxed);
    int number;

    do {
        if (!~seen)
            return NUMBERS_MAX;
        number = __builtin_ctzll(~seen);
    } while (!atomic_compare_exchange_weak_explicit(
        &n->busy, &seen, seen | 1ull << number, memory_order_relaxed,
        memory_order_relaxed));
    return number;
}

void numbers_give_back(struct numbers *n, int number)
{
    if (number < NUMBERS_MAX)
        atomic_fetch_and_explicit(&n->busy, ~(1ull << number), memory_order_relaxed);
}
