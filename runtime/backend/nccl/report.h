/* SPDX-License-Identifier: Apache-2.0 */
/* Reports the GPUs of this machine, and why the runtime cannot use them. */
#ifndef RUNTIME_BACKEND_NCCL_REPORT_H
#define RUNTIME_BACKEND_NCCL_REPORT_H

#include "runtime/backend/device.h"

#define REPORT_OLDEST_SM 70

/* kernels: contents of the image, "sm_70 sm_90 ptx"; "": none are built in. Creates no
 * context. Always fills *ret. Any thread. */
void gpu_report(const struct device_config *c,
                const char *kernels,
                struct device_report *ret);
/* "GPU-0123...", as the driver writes it. */
void gpu_report_uuid(const uint8_t uuid[16], bool is_mig, char ret[48]);

#endif
