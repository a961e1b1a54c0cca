/* SPDX-License-Identifier: Apache-2.0 */
/* libnvidia-ml.so.1 of the tests: version 550.54.15, two links between GPUs, and the
 * XID of the fault xid in the file HVD_FAKE_FILE, once. Calls about
 * a device or a set hang while a test says so. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/backend/nccl/nvml_dl.h"

#define EXPORT                           __attribute__((visibility("default")))

/* As the backend looks them up. */
#define NVML_DECLARE(name, symbol, args) EXPORT int symbol args;
NVML_SYMBOLS(NVML_DECLARE)

struct nvml_device_s {
    int bus;
};
struct nvml_set_s {
    int n;
};
static struct nvml_device_s devices[256];
static struct nvml_set_s set;
static _Atomic int xid, hangs, n_hanging, n_sets;

/* For tests in this process; -1: it is lost, until 0. */
EXPORT void hvd_fake_xid(int code);
void hvd_fake_xid(int code)
{
    xid = code;
}

/* From here on calls do not return, or do; how many are sitting in one. */
EXPORT int hvd_fake_nvml_hang(int on);
int hvd_fake_nvml_hang(int on)
{
    hangs = on;
    return n_hanging;
}

EXPORT int hvd_fake_nvml_sets(void);
int hvd_fake_nvml_sets(void)
{
    return n_sets;
}

static void may_hang(void)
{
    n_hanging++;
    while (hangs)
        (void)usleep(1000);
    n_hanging--;
}

int nvmlInit_v2(void)
{
    const char *s = getenv("HVD_FAKE_NVML");

    xid = 0;
    return s ? atoi(s) : 0;
}

int nvmlSystemGetDriverVersion(char *ret, unsigned n)
{
    (void)snprintf(ret, n, "550.54.15");
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, nvml_device *ret)
{
    unsigned domain, bus;

    may_hang();
    if (sscanf(pci, "%x:%x:", &domain, &bus) != 2 || bus > 255)
        return 2;
    __atomic_store_n(&devices[bus].bus, (int)bus, __ATOMIC_RELAXED);
    *ret = &devices[bus];
    return 0;
}

int nvmlDeviceGetNvLinkState(nvml_device d, unsigned link, int *ret)
{
    *ret = link < 2;
    return link < 4 ? 0 : 2;
}

/* The neighbour has the other parity. */
int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml_device d,
                                        unsigned link,
                                        struct nvml_pci *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->bus = (unsigned)d->bus ^ 1u;
    (void)snprintf(ret->id, sizeof(ret->id), "00000000:%02X:00.0", ret->bus);
    return 0;
}

int nvmlEventSetCreate(nvml_set *ret)
{
    n_sets++;
    *ret = &set;
    return 0;
}

int nvmlDeviceRegisterEvents(nvml_device d, unsigned long long types, nvml_set s)
{
    return d && s && types == NVML_XID_CRITICAL ? 0 : 2;
}

static int from_file(void)
{
    static int given;
    const char *path = getenv("HVD_FAKE_FILE");
    FILE *f = path && !given ? fopen(path, "re") : NULL;
    char text[512];

    if (!f)
        return 0;
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    (void)fclose(f);
    const char *at = strstr(text, "xid=");
    given = at ? atoi(at + 4) : 0;
    return given;
}

int nvmlEventSetWait_v2(nvml_set s, struct nvml_event *ret, unsigned ms)
{
    may_hang();
    int code = atomic_load(&xid) < 0 ? -1 : atomic_exchange(&xid, 0);

    if (code < 0)
        return NVML_GPU_IS_LOST;
    code = code ? code : from_file();
    *ret = (struct nvml_event){.type = NVML_XID_CRITICAL,
                               .data = (unsigned long long)code};
    return code ? 0 : NVML_TIMEOUT;
}

int nvmlEventSetFree(nvml_set s)
{
    n_sets -= s != NULL;
    return s ? 0 : 2;
}
