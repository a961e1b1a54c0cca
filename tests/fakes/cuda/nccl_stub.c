/* SPDX-License-Identifier: Apache-2.0 */
/* A libnccl.so.2 that reports a version and does nothing else. The version is the
 * number of its folder, so a copy can be any version, and a test sees which file was
 * used. In a folder without a number it is not an NCCL library. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/nccl/nccl_dl.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int ncclGetVersion(int *ret);
int ncclGetVersion(int *ret)
{
    Dl_info me;

    if (!dladdr((void *)(uintptr_t)ncclGetVersion, &me))
        return 1;
    const char *slash = strrchr(me.dli_fname, '/'), *at = slash;
    while (at && at > me.dli_fname && at[-1] != '/')
        at--;
    *ret = at ? atoi(at) : 0;
    return *ret == 0;
}

/* All others by name alone; they are never called. */
EXPORT int hvd_stub(void);
int hvd_stub(void)
{
    abort();
}
/* What NCCL writes of itself into its library. */
EXPORT const char hvd_stub_text[] = "NCCL version 2.30.7+cuda13.2";
#define TEXT_OF(x) #x
#define ALIAS(symbol)                                                                  \
    __asm__(".globl " TEXT_OF(symbol) "\n.set " TEXT_OF(symbol) ", hvd_stub\n");
#define STUB(name, symbol, least, args) ALIAS(symbol)
#define ncclGetVersion                  hvd_stub_of_version /* it is there already */
NCCL_SYMBOLS(STUB) NCCL_TEXTS(STUB)
