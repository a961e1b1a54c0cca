/* SPDX-License-Identifier: Apache-2.0 */
/* libnvidia-ml.so.1 by dlopen: the driver's version, NVLinks and XID events. Without
 * it these are unknown; nothing else depends on it. */
#ifndef RUNTIME_BACKEND_NCCL_NVML_DL_H
#define RUNTIME_BACKEND_NCCL_NVML_DL_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/backend/device.h"

typedef struct nvml_device_s *nvml_device;
typedef struct nvml_set_s *nvml_set;
struct nvml_event {
    nvml_device device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};
struct nvml_pci { /* v3 */
    char id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem;
    char id[32];
};

/* clang-format off */
#define NVML_SYMBOLS(X)                                                                            \
    X(init, nvmlInit_v2, (void))                                                                   \
    X(driver_version, nvmlSystemGetDriverVersion, (char *ret, unsigned n))                         \
    X(by_pci, nvmlDeviceGetHandleByPciBusId_v2, (const char *pci, nvml_device *ret))               \
    X(nvlink_state, nvmlDeviceGetNvLinkState, (nvml_device d, unsigned link, int *ret))            \
    X(nvlink_remote, nvmlDeviceGetNvLinkRemotePciInfo_v2,                                          \
      (nvml_device d, unsigned link, struct nvml_pci *ret))                                        \
    X(set_new, nvmlEventSetCreate, (nvml_set *ret))                                                \
    X(set_add, nvmlDeviceRegisterEvents, (nvml_device d, unsigned long long types, nvml_set s))    \
    X(set_wait, nvmlEventSetWait_v2, (nvml_set s, struct nvml_event *ret, unsigned ms))            \
    X(set_free, nvmlEventSetFree, (nvml_set s))
/* clang-format on */
struct nvml_api {
/* NOLINTBEGIN(bugprone-macro-parentheses): names and argument lists */
#define NVML_FIELD(name, symbol, args) int(*name) args;
    NVML_SYMBOLS(NVML_FIELD)
#undef NVML_FIELD
    /* NOLINTEND(bugprone-macro-parentheses) */
};
#define NVML_XID_CRITICAL 8ull
#define NVML_TIMEOUT      10
#define NVML_GPU_IS_LOST  15
#define NVML_MAX_LINKS    18

/* The process's table, initialised; NULL: no NVML. Any thread. */
const struct nvml_api *nvml_load(void);
/* Fills in the driver's version and the links of r->gpus, by their pci; unknown values
 * stay empty. */
void nvml_describe(const struct nvml_api *nvml, struct device_report *r);
/* XID events of the GPU at pci from here on. NULL: not available. */
nvml_set nvml_xids_new(const struct nvml_api *nvml, const char *pci);
/* The next event, 0: none. Never blocks. Always 79 for a GPU that NVML cannot reach
 * any more: NVML then returns that error instead of events. */
unsigned nvml_xids_next(const struct nvml_api *nvml, nvml_set s);
/* "GPU has fallen off the bus" for 79; "": not in our table. */
const char *nvml_xid_text(unsigned xid);
/* Where to look: "the GPU or its slot: power, heat or PCIe, drain the host"; or "". */
const char *nvml_xid_hint(unsigned xid);
/* No work of this GPU will finish any more, though its driver may not report it. */
bool nvml_xid_is_fatal(unsigned xid);
/* It follows another error, and is not reported if that one was. */
bool nvml_xid_is_aftermath(unsigned xid);

#endif
