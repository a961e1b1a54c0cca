/* SPDX-License-Identifier: Apache-2.0 */
/* Finds libcuda.so.1 and its symbols. A symbol newer than the driver's version counts
 * as absent even if a library exports it, so a table lists what works. The library is
 * never unloaded: its threads may live. Called by gpu_process.c, once. */
#include "runtime/backend/nccl/cuda_dl.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "runtime/base/mem.h"

#define CUDA_OLDEST 11000

static const struct {
    const char *symbol;
    int least;
    size_t at;
} rows[] = {
#define CUDA_ROW(name, symbol, least, args)                                            \
    {#symbol, least, offsetof(struct cuda_api, name)},
    CUDA_SYMBOLS(CUDA_ROW)
#undef CUDA_ROW
};

const char *cuda_symbol(enum cuda_call c)
{
    return (unsigned)c < ARRAY_LEN(rows) ? rows[c].symbol : "CUDA";
}

static int find_version(void *lib, int *ret, struct err *err)
{
    int (*ask)(int *);
    void *p = dlsym(lib, "cuDriverGetVersion");

    memcpy(&ask, &p, sizeof(ask));
    if (!p || ask(ret) != CU_OK)
        return err_set(err, -ENOTSUP, "the driver does not report its version");
    if (*ret < CUDA_OLDEST)
        return err_set(err, -ENOTSUP,
                       "the driver is for CUDA %d.%d; 11.0 or later is needed "
                       "(NVIDIA driver 450 or later)",
                       *ret / 1000, *ret % 1000 / 10);
    return 0;
}

int cuda_load(const char *name, struct cuda_api *ret, struct err *err)
{
    struct cuda_api api = {0};
    void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    if (!lib)
        return err_set(err, -ENODEV, "no NVIDIA driver here (%s)", dlerror());
    int rc = find_version(lib, &api.version, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        void *p = rows[i].least <= api.version ? dlsym(lib, rows[i].symbol) : NULL;
        if (!p && rows[i].least == 0)
            return err_set(err, -ENOTSUP, "the driver (%s) has no %s", name,
                           rows[i].symbol);
        memcpy((char *)&api + rows[i].at, &p, sizeof(p));
    }
    *ret = api;
    return 0;
}

/* Errors after which any further work returns the same error, according to cuda.h. */
static bool is_lost(int result)
{
    static const int lost[] = {
        CU_ECC_UNCORRECTABLE,
        CU_NVLINK_UNCORRECTABLE,
        CU_CONTAINED,
        CU_ILLEGAL_ADDRESS,
        CU_LAUNCH_TIMEOUT,
        CU_CONTEXT_DESTROYED,
        CU_ASSERT,
        CU_HARDWARE_STACK,
        CU_ILLEGAL_INSTRUCTION,
        CU_MISALIGNED_ADDRESS,
        CU_INVALID_ADDRESS_SPACE,
        CU_INVALID_PC,
        CU_LAUNCH_FAILED,
        CU_TENSOR_MEMORY_LEAK,
        CU_MPS_CLIENT_TERMINATED,
        CU_EXTERNAL_DEVICE,
    };

    for (size_t i = 0; i < ARRAY_LEN(lost); i++)
        if (lost[i] == result)
            return true;
    return false;
}

static int code_of(int result)
{
    if (is_lost(result))
        return -EIO;
    if (result >= CU_CAPTURE_UNSUPPORTED && result <= CU_CAPTURE_LAST)
        return -EBUSY;
    switch (result) {
    case CU_OUT_OF_MEMORY:
        return -ENOMEM;
    case CU_DEVICE_UNAVAILABLE:
    case CU_NO_DEVICE:
    case CU_INVALID_DEVICE:
    case CU_SYSTEM_NOT_READY:
        return -ENODEV;
    case CU_INVALID_IMAGE:
    case CU_NO_BINARY:
    case CU_INVALID_PTX:
    case CU_UNSUPPORTED_PTX:
    case CU_NOT_SUPPORTED:
    case CU_SYSTEM_DRIVER_MISMATCH:
    case CU_COMPAT_NOT_SUPPORTED:
        return -ENOTSUP;
    default: /* a number of the driver, not our enum */
        return -EINVAL;
    }
}

/* Adds to the driver's own text; "": nothing. */
static const char *cuda_advice(int result)
{
    if (is_lost(result))
        return "; the CUDA context of this process is lost: restart it";
    switch (result) {
    case CU_SYSTEM_DRIVER_MISMATCH:
    case CU_COMPAT_NOT_SUPPORTED:
        return "; libcuda.so.1 of this container does not fit the driver of the host";
    case CU_SYSTEM_NOT_READY:
        return "; where GPUs have NVSwitches, the host's service nvidia-fabricmanager "
               "must run, in the version of the driver";
    case CU_DEVICE_UNAVAILABLE:
        return "; another process has this GPU, whose compute mode is exclusive "
               "(nvidia-smi -q -d COMPUTE,PIDS)";
    default: /* a number of the driver, not our enum */
        return "";
    }
}

int cuda_fail(const struct cuda_api *api, const char *call, int result, struct err *err)
{
    const char *name = NULL, *text = NULL, *more = cuda_advice(result);

    if (api->error_name(result, &name) != CU_OK || !name)
        name = NULL;
    if (api->error_text(result, &text) != CU_OK || !text)
        text = "error";
    if (name)
        return err_set(err, code_of(result), "%s: %s (%s)%s", call, text, name, more);
    return err_set(err, code_of(result), "%s: CUDA error %d%s", call, result, more);
}
