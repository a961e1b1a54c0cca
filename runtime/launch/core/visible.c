/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher reads the list to place ranks near their GPUs; in the ranks CUDA reads
 * it. Several MIG instances count separately here, though CUDA shows a process only the
 * first: such a list is for ranks that get one each. Called by topology_read.c. */
#include "runtime/launch/core/visible.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define UUID_HEX "0123456789abcdefABCDEF-"

/* The GPU whose UUID starts with p; t->n_gpus: none, or more than one. */
static size_t gpu_find_uuid(const struct topology *t, const char *p, size_t n)
{
    size_t found = t->n_gpus, n_found = 0;

    for (size_t i = 0; n > 4 && i < t->n_gpus; i++)
        if (strncasecmp(p, t->gpus[i].uuid, n) == 0) {
            found = i;
            n_found++;
        }
    return n_found == 1 ? found : t->n_gpus;
}

static size_t gpu_find_number(const struct topology *t, const char *p, size_t n)
{
    char *end;

    if (*p < '0' || *p > '9')
        return t->n_gpus;
    unsigned long number = strtoul(p, &end, 10);
    return end == p + n && number < t->n_gpus ? number : t->n_gpus;
}

static bool gpu_find_mig(const struct topology *t,
                         const char *p,
                         size_t n,
                         struct topology_device *ret)
{
    const char *uuid = p + 4, *slash = memchr(p, '/', n);
    size_t n_uuid = n - 4;

    *ret = (struct topology_device){.node = -1, .is_up = true};
    if (n_uuid > 4 && strncmp(uuid, "GPU-", 4) == 0) {
        if (!slash)
            return false;
        size_t i = gpu_find_uuid(t, uuid, (size_t)(slash - uuid));
        if (i == t->n_gpus)
            return false;
        *ret = t->gpus[i];
    } else if (n_uuid == 0 || strspn(uuid, UUID_HEX) < n_uuid) {
        return false;
    } else if (t->n_gpus == 1) {
        *ret = t->gpus[0];
    }
    (void)snprintf(ret->name, sizeof(ret->name), "%.*s", (int)n, p);
    return true;
}

static bool gpu_find_entry(const struct topology *t,
                           const char *entry,
                           size_t n,
                           struct topology_device *ret)
{
    if (n >= 4 && strncmp(entry, "MIG-", 4) == 0)
        return gpu_find_mig(t, entry, n, ret);
    size_t i = n >= 4 && strncmp(entry, "GPU-", 4) == 0 ? gpu_find_uuid(t, entry, n)
                                                        : gpu_find_number(t, entry, n);
    if (i == t->n_gpus)
        return false;
    *ret = t->gpus[i];
    return true;
}

void visible_keep(struct topology *t, const char *list)
{
    struct topology_device kept[TOPOLOGY_MAX_DEVICES];
    size_t n = 0;

    for (const char *p = list; n < TOPOLOGY_MAX_DEVICES;) {
        p += strspn(p, " ");
        size_t len = strcspn(p, ","), trimmed = len;
        while (trimmed && p[trimmed - 1] == ' ')
            trimmed--;
        if (!gpu_find_entry(t, p, trimmed, &kept[n]))
            break;
        n++;
        if (p[len] != ',')
            break;
        p += len + 1;
    }
    memcpy(t->gpus, kept, n * sizeof(*kept));
    t->n_gpus = n;
}
