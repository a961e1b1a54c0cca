/* SPDX-License-Identifier: Apache-2.0 */
/* real-driver CUDA NVML VERSION: compares our tables with NVIDIA's libraries: every
 * symbol that a driver of this version should have, and the names of the result codes.
 * No GPU is needed, because only texts are requested. Prints one line for each
 * difference; exit code 1 if there was any. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/nccl/cuda_dl.h"
#include "runtime/backend/nccl/nvml_dl.h"
#include "runtime/base/mem.h"

static int n_wrong;

static void wrong_count(const char *what, const char *name, const char *said)
{
    printf("# %s %s: %s\n", what, name, said);
    n_wrong++;
}

static const struct {
    int code;
    const char *name;
} codes[] = {
    {CU_OK, "CUDA_SUCCESS"},
    {CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
    {CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
    {CU_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
    {CU_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED"},
    {CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
    {CU_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
    {CU_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
    {CU_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
    {CU_NO_BINARY, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
    {CU_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE"},
    {CU_INVALID_PTX, "CUDA_ERROR_INVALID_PTX"},
    {CU_UNSUPPORTED_PTX, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
    {CU_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
    {CU_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
    {CU_NOT_READY, "CUDA_ERROR_NOT_READY"},
    {CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {CU_LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT"},
    {CU_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
    {CU_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
    {CU_SYSTEM_NOT_READY, "CUDA_ERROR_SYSTEM_NOT_READY"},
    {CU_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
    {CU_COMPAT_NOT_SUPPORTED, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"},
    {CU_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
    {CU_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
    {CU_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"},
    {CU_CAPTURE_LAST, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"},
    {CU_UNKNOWN, "CUDA_ERROR_UNKNOWN"},
};

static void look_at_codes(const struct cuda_api *cu)
{
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        const char *name = NULL;
        int rc = cu->error_name(codes[i].code, &name);

        if (rc != CU_OK || !name || strcmp(name, codes[i].name) != 0)
            wrong_count("result", codes[i].name, name ? name : "is unknown");
    }
}

static void look_at_symbols(const struct cuda_api *cu)
{
#define LOOK(name, symbol, least, args)                                                \
    if (cu->version >= (least) && !cu->name)                                           \
        wrong_count("symbol", #symbol, "is not there");
    CUDA_SYMBOLS(LOOK)
#undef LOOK
}

static void look_at_nvml(const char *path)
{
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (!lib) {
        wrong_count("library", path, dlerror());
        return;
    }
#define LOOK(name, symbol, args)                                                       \
    if (!dlsym(lib, #symbol))                                                          \
        wrong_count("symbol", #symbol, "is not there");
    NVML_SYMBOLS(LOOK)
#undef LOOK
}

int main(int argc, char **argv)
{
    struct cuda_api cu;
    struct err err = ERR_INIT;

    if (argc != 4) {
        fprintf(stderr, "usage: real-driver CUDA NVML VERSION\n");
        return 2;
    }
    if (cuda_load(argv[1], &cu, &err) < 0) {
        wrong_count("driver", argv[1], err.text);
        return 1;
    }
    if (cu.version != atoi(argv[3]))
        wrong_count("version", argv[3], "is another");
    look_at_symbols(&cu);
    look_at_codes(&cu);
    look_at_nvml(argv[2]);
    return n_wrong > 0;
}
