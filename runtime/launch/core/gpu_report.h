/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the output of hvd-gpu(1): the GPUs, driver, NCCL and links of a host. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_GPU_REPORT_H
#define RUNTIME_LAUNCH_CORE_GPU_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/strbuf.h"

#define GPU_REPORT_MAX_GPUS 16
#define GPU_REPORT_NO_NCCL                                                             \
    "no NCCL in the system; ranks look for that of their framework"

struct gpu_report { /* "": unknown */
    char driver[32], cuda[16], nccl[32], nccl_path[256], kernels[64];
    size_t n_gpus;
    struct gpu_report_gpu {
        unsigned index, sm; /* sm 90: sm_90 */
        uint64_t memory_mib;
        bool is_mig;
        char uuid[48], name[64];
    } gpus[GPU_REPORT_MAX_GPUS];
    char nvlinks[256]; /* "0-1:18 0-switch:18": links between pairs */
    char ib[256];      /* "mlx5_0/1 400 Gb/sec (4X NDR), mlx5_1/1 .." */
    char problem[400]; /* why GPU tensors are not possible; "": they are */
};

/* Unknown and incomplete lines are ignored. */
void gpu_report_read(const char *text, struct gpu_report *ret);
/* The version, such as "570.86.10", in the text of /proc/driver/nvidia/version; "":
 * none. */
void gpu_report_driver(const char *version_file, char *ret, size_t size_bytes);
/* One line for users, without a newline: "GPUs: 8 x NVIDIA H100 80GB HBM3 (81559 MiB,
 * sm_90); driver 570.86.10, CUDA 12.8, NCCL 2.27.5 (path); NVLink ..; InfiniBand ..;
 * .." */
void gpu_report_line(const struct gpu_report *r, struct strbuf *out);
/* True if NCCL is not installed in the system; a framework's wheel may still contain
 * it. */
bool gpu_report_lacks_nccl(const struct gpu_report *r);

#endif
