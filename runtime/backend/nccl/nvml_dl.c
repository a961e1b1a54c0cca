/* SPDX-License-Identifier: Apache-2.0 */
/* NVML by dlopen, for what only it provides (the driver's own version, NVLinks, XIDs).
 * All of it is optional, and every failure means "unknown". The table belongs to the
 * process: the only mutable global here, filled once under pthread_once. */
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

static void nvml_load_table(void)
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
    (void)pthread_once(&once, nvml_load_table); /* cannot fail with a static one */
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
    int result = s ? nvml->set_wait(s, &e, 0) : NVML_TIMEOUT;

    if (result == NVML_GPU_IS_LOST)
        return 79;
    return result == 0 && e.type == NVML_XID_CRITICAL ? (unsigned)e.data : 0;
}

/* From NVIDIA's catalogue of XIDs, shortened. "; " would end the message for the
 * launcher (contract/gpu_cause.h). */
static const struct xid_row {
    unsigned xid;
    bool is_fatal, is_aftermath;
    const char *text, *hint;
} xids[] = {
    {13, false, false, "graphics engine exception",
     "most often the program: a kernel's access out of bounds"},
    {31, false, false, "GPU memory page fault",
     "most often the program: a kernel used an address that is not its own"},
    {43, false, true, "GPU stopped processing",
     "the program: its kernel was stopped, the GPU is not damaged"},
    {45, false, true, "preemptive cleanup",
     "a consequence: look for the error before it"},
    {48, false, false, "double bit ECC error",
     "the GPU: its memory is at fault, drain the host and reset the GPU"},
    {61, false, false, "internal micro-controller breakpoint", "the GPU: reset it"},
    {62, false, false, "internal micro-controller halt", "the GPU: reset it"},
    {63, false, false, "ECC page retirement or row remapping",
     "the GPU: weak memory was replaced, reset it when the host is idle"},
    {64, false, false, "ECC page retirement or row remapping failed",
     "the GPU: weak memory could not be replaced, have the GPU exchanged"},
    {74, false, false, "NVLink error",
     "the link: NVLink, its bridge or switch, or the GPU at either end"},
    {79, true, false, "GPU has fallen off the bus",
     "the GPU or its slot: power, heat or PCIe, drain the host"},
    {92, false, false, "high single-bit ECC error rate", "the GPU: have it tested"},
    {94, false, false, "contained memory error",
     "the GPU: its memory failed this program alone, start again and reset it when "
     "idle"},
    {95, false, false, "uncontained memory error",
     "the GPU: its memory failed all programs, reset it"},
    {119, false, false, "GSP RPC timeout",
     "the GPU or its driver: its firmware does not answer, reset it"},
    {120, false, false, "GSP error", "the GPU or its driver: reset it"},
    {140, false, false, "unrecovered ECC error",
     "the GPU: its memory is at fault, drain the host and reset the GPU"},
    {154, false, true, "GPU recovery action changed",
     "a consequence: look for the error before it, and at the recovery action in "
     "nvidia-smi -q"},
};

static const struct xid_row *xid_row(unsigned xid)
{
    static const struct xid_row unknown = {0, false, false, "", ""};

    for (size_t i = 0; i < ARRAY_LEN(xids); i++)
        if (xids[i].xid == xid)
            return &xids[i];
    return &unknown;
}

const char *nvml_xid_text(unsigned xid)
{
    return xid_row(xid)->text;
}

const char *nvml_xid_hint(unsigned xid)
{
    return xid_row(xid)->hint;
}

bool nvml_xid_is_fatal(unsigned xid)
{
    return xid_row(xid)->is_fatal;
}

bool nvml_xid_is_aftermath(unsigned xid)
{
    return xid_row(xid)->is_aftermath;
}
