/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLAS by dlopen, once: first a library that the process has loaded (the
 * framework's), then one in the loader's path; in each, the driver's major version
 * before older ones. The table belongs to the process; it is the only mutable global
 * here. */
#include "runtime/backend/nccl/cublas_dl.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"

#define NEWEST 13
#define OLDEST 11

static struct cublas_api table;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* table */

static bool cublas_fill_table(void *lib, int major)
{
    static const struct {
        const char *symbol;
        size_t at;
    } rows[] = {
#define CUBLAS_ROW(name, symbol, args) {#symbol, offsetof(struct cublas_api, name)},
        CUBLAS_SYMBOLS(CUBLAS_ROW)
#undef CUBLAS_ROW
    };
    struct cublas_api api = {.major = major};

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        void *p = dlsym(lib, rows[i].symbol);
        if (!p)
            return false;
        memcpy((char *)&api + rows[i].at, &p, sizeof(p));
    }
    table = api;
    return true;
}

static bool cublas_find(int newest, int flags)
{
    for (int major = newest; major >= OLDEST; major--) {
        char name[32];
        (void)snprintf(name, sizeof(name), "libcublas.so.%d", major);
        void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | flags);
        if (lib && cublas_fill_table(lib, major))
            return true;
    }
    return false;
}

int cublas_load(int driver_version, const struct cublas_api **ret, struct err *err)
{
    int newest = driver_version / 1000;

    newest = newest > NEWEST ? NEWEST : newest < OLDEST ? OLDEST : newest;
    (void)pthread_mutex_lock(&lock);
    bool is_there =
        table.major != 0 || cublas_find(newest, RTLD_NOLOAD) || cublas_find(newest, 0);
    (void)pthread_mutex_unlock(&lock);
    if (!is_there)
        return err_set(err, -ENOENT, "cuBLAS was not found (libcublas.so.%d)", newest);
    *ret = &table;
    return 0;
}
