/* SPDX-License-Identifier: Apache-2.0 */
/* Sorted vector with binary search: look-ups of jobs and pods are far more frequent
 * than insertions and deletions, and moving ten thousand pointers takes microseconds.
 * Called by children.c, store.c, queue.c and priorities.c. */
#include "operator/core/keyed.h"

#include <stdbool.h>
#include <string.h>

#include "runtime/base/mem.h"

#define KEYED_MAX 1000000u

const char *keyed_key(const void *entry)
{
    return *(char *const *)entry;
}

/* Index of key, or where it would be. */
static size_t index_of(const struct keyed *k, const char *key, bool *ret_found)
{
    size_t lo = 0, hi = k->n;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int c = strcmp(keyed_key(k->v[mid]), key);

        if (c == 0) {
            *ret_found = true;
            return mid;
        }
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    *ret_found = false;
    return lo;
}

void *keyed_find(const struct keyed *k, const char *key)
{
    bool found;
    size_t i = index_of(k, key, &found);

    return found ? k->v[i] : NULL;
}

size_t keyed_from(const struct keyed *k, const char *key)
{
    bool found;

    return index_of(k, key, &found);
}

int keyed_insert(struct keyed *k, void *entry)
{
    bool found;
    size_t i = index_of(k, keyed_key(entry), &found);
    void *p = k->v;
    int rc = mem_grow(&p, k->n, &k->cap, sizeof(*k->v), KEYED_MAX);

    if (rc < 0)
        return rc;
    k->v = p;
    memmove(&k->v[i + 1], &k->v[i], (k->n - i) * sizeof(*k->v));
    k->v[i] = entry;
    k->n++;
    return 0;
}

size_t keyed_namespace_end(const struct keyed *k, size_t i)
{
    const char *key = keyed_key(k->v[i]);
    size_t n = strcspn(key, "/") + 1; /* with the slash, or the NUL */

    do {
        i++;
    } while (i < k->n && strncmp(keyed_key(k->v[i]), key, n) == 0);
    return i;
}

void keyed_remove(struct keyed *k, const void *entry)
{
    bool found;
    size_t i = index_of(k, keyed_key(entry), &found);

    memmove(&k->v[i], &k->v[i + 1], (k->n - i - 1) * sizeof(*k->v));
    k->n--;
}

void keyed_release(struct keyed *k)
{
    mem_free(k->v);
    *k = (struct keyed){0};
}
