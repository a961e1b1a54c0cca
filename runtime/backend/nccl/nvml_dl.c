/* SPDX-License-Identifier: Apache-2.0 */
/* NVML by dlopen: what only it can tell (the driver's own version, NVLinks, XIDs). All
 * of it is optional, and every failure means "not known". The table is the process's:
 * the one mutable global here, filled once under pthread_once. */
#include "runtime/backend/nccl/nvml_dl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/mem.h"

static struct nvml_api table;
static bool is_there;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    static const struct {
        const char *symbol;
        size_t at;
    } rows[] = {
#define NVML_ROW(name, symbol, args) {#symbol, offsetof(struct nvml_api, name)},
        NVML_SYMBOLS(NVML_ROW)
#undef NVML_ROW
    };
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    for (size_t i = 0; lib && i < ARRAY_LEN(rows); i++) {
        void *p = dlsym(lib, rows[i].symbol);
        if (!p)
            return;
        memcpy((char *)&table + rows[i].at, &p, sizeof(p));
    }
    is_there = lib && table.init() == 0;
}

const struct nvml_api *nvml_load(void)
{
    (void)pthread_once(&once, load); /* cannot fail with a static one */
    return is_there ? &table : NULL;
}

/* NVML writes the domain with eight digits, CUDA with four. */
static bool is_same_pci(const char *a, const char *b)
{
    unsigned da, ba, va, db, bb, vb;

    return sscanf(a, "%x:%x:%x", &da, &ba, &va) == 3
           && sscanf(b, "%x:%x:%x", &db, &bb, &vb) == 3 && da == db && ba == bb
           && va == vb;
}

static void
count_links(const struct nvml_api *nvml, struct device_report *r, struct device_gpu *g)
{
    nvml_device d;

    if (nvml->by_pci(g->pci, &d) != 0)
        return;
    for (unsigned link = 0; link < NVML_MAX_LINKS; link++) {
        struct nvml_pci other = {0};
        int is_active = 0;
        if (nvml->nvlink_state(d, link, &is_active) != 0 || !is_active)
            continue;
        g->n_nvlinks++;
        if (nvml->nvlink_remote(d, link, &other) != 0)
            continue;
        for (uint32_t j = 0; j < r->n_gpus; j++)
            if (is_same_pci(r->gpus[j].pci, other.id))
                g->nvlinks[j]++;
    }
}

void nvml_describe(const struct nvml_api *nvml, struct device_report *r)
{
    char text[96] = "";

    if (!nvml)
        return;
    if (nvml->driver_version(text, sizeof(text)) == 0)
        (void)snprintf(r->driver, sizeof(r->driver), "%.31s", text);
    for (uint32_t i = 0; i < r->n_gpus; i++)
        count_links(nvml, r, &r->gpus[i]);
}

nvml_set nvml_xids_new(const struct nvml_api *nvml, const char *pci)
{
    nvml_device d;
    nvml_set s;

    if (!nvml || nvml->by_pci(pci, &d) != 0 || nvml->set_new(&s) != 0)
        return NULL;
    if (nvml->set_add(d, NVML_XID_CRITICAL, s) == 0)
        return s;
    (void)nvml->set_free(s);
    return NULL;
}

unsigned nvml_xids_next(const struct nvml_api *nvml, nvml_set s)
{
    struct nvml_event e = {0};

    if (!s || nvml->set_wait(s, &e, 0) != 0 || e.type != NVML_XID_CRITICAL)
        return 0;
    return (unsigned)e.data;
}

const char *nvml_xid_text(unsigned xid)
{
    static const struct {
        unsigned xid;
        const char *text;
    } texts[] = {{13, "graphics engine exception"},
                 {31, "GPU memory page fault"},
                 {43, "GPU stopped processing"},
                 {45, "preemptive cleanup"},
                 {48, "double bit ECC error"},
                 {61, "internal micro-controller breakpoint"},
                 {62, "internal micro-controller halt"},
                 {63, "ECC page retirement or row remapping"},
                 {64, "ECC page retirement or row remapping failed"},
                 {74, "NVLink error"},
                 {79, "GPU has fallen off the bus"},
                 {92, "high single-bit ECC error rate"},
                 {94, "contained memory error"},
                 {95, "uncontained memory error"},
                 {119, "GSP RPC timeout"},
                 {120, "GSP error"},
                 {140, "unrecovered ECC error"}};

    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (texts[i].xid == xid)
            return texts[i].text;
    return "";
}
