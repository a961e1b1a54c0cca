/* SPDX-License-Identifier: Apache-2.0 */
/* Fills a device_report from the driver, NCCL and NVML. Nothing here fails: unknown
 * values are left out, and the first reason that prevents GPU tensors is the report's
 * problem. */
#include "runtime/backend/nccl/report.h"

#include <stdio.h>
#include <string.h>

#include "runtime/backend/nccl/card.h"
#include "runtime/backend/nccl/gpu.h"

void gpu_report_uuid(const uint8_t uuid[16], bool is_mig, char ret[48])
{
    char text[48];
    const char *plain = gpu_uuid_text(uuid, text);

    if (is_mig && strncmp(plain, "GPU-", 4) == 0)
        (void)snprintf(ret, 48, "MIG-%.43s", plain + 4);
    else
        (void)snprintf(ret, 48, "%.47s", plain);
}

static void set_problem(struct device_report *r, const char *text)
{
    if (!r->problem[0])
        (void)snprintf(r->problem, sizeof(r->problem), "%.399s", text);
}

static void describe_gpu(const struct cuda_api *cu, int i, struct device_gpu *g)
{
    struct cu_uuid uuid = {0};
    int major = 0, minor = 0;
    size_t bytes = 0;
    cu_device d;

    if (cu->device_get(&d, i) != CU_OK)
        return;
    if (cu->device_name(g->name, sizeof(g->name), d) != CU_OK)
        g->name[0] = '\0';
    g->is_mig = strstr(g->name, " MIG ") != NULL;
    if ((cu->device_uuid ? cu->device_uuid(&uuid, d) : cu->device_uuid_v1(&uuid, d))
        == CU_OK)
        gpu_report_uuid(uuid.bytes, g->is_mig, g->uuid);
    if (cu->pci_bus_id(g->pci, sizeof(g->pci), d) != CU_OK)
        g->pci[0] = '\0';
    if (cu->device_attr(&major, CU_ATTR_SM_MAJOR, d) == CU_OK
        && cu->device_attr(&minor, CU_ATTR_SM_MINOR, d) == CU_OK)
        g->sm = major * 10 + minor;
    if (cu->device_memory(&bytes, d) == CU_OK)
        g->memory_bytes = bytes;
}

static void describe_gpus(const struct cuda_api *cu, struct device_report *r)
{
    char text[160] = "";
    uint32_t n_old = 0;
    int n = 0;

    if (cu->device_count(&n) != CU_OK || n < 0)
        n = 0;
    r->n_gpus = n < DEVICE_MAX_GPUS ? (uint32_t)n : DEVICE_MAX_GPUS;
    for (uint32_t i = 0; i < r->n_gpus; i++) {
        struct device_gpu *g = &r->gpus[i];
        describe_gpu(cu, (int)i, g);
        if (g->sm >= REPORT_OLDEST_SM || n_old++ > 0)
            continue;
        (void)snprintf(
            text, sizeof(text),
            "GPU %u (%s) has compute capability %d.%d; %d.%d or later is needed", i,
            g->name, g->sm / 10, g->sm % 10, REPORT_OLDEST_SM / 10,
            REPORT_OLDEST_SM % 10);
    }
    if (n_old > 0 && n_old == r->n_gpus) /* no rank uses a GPU for the display */
        set_problem(r, text);
}

void gpu_report(const struct device_config *c,
                const char *kernels,
                struct device_report *ret)
{
    const struct cuda_api *cu;
    const struct nccl_api *nccl;
    struct err err = ERR_INIT;
    char text[24];
    int version;

    *ret = (struct device_report){0};
    (void)snprintf(ret->kernels, sizeof(ret->kernels), "%.63s", kernels);
    if (gpu_load_cuda(&cu, &err) == 0) {
        describe_gpus(cu, ret);
        nvml_describe(nvml_load(), ret);
    } else {
        set_problem(ret, err.text);
    }
    version = gpu_cuda_version();
    if (version > 0)
        (void)snprintf(ret->cuda, sizeof(ret->cuda), "%d.%d", version / 1000 % 1000,
                       version % 1000 / 10);
    if (gpu_load_nccl(c, &nccl, &err) == 0) {
        (void)snprintf(ret->nccl, sizeof(ret->nccl), "%s",
                       nccl_version_text(nccl->version, text));
        (void)snprintf(ret->nccl_path, sizeof(ret->nccl_path), "%s", nccl->path);
    } else {
        set_problem(ret, err.text);
    }
    if (!kernels[0])
        set_problem(ret, "no GPU kernels were built in (KERNELS=none)");
}
