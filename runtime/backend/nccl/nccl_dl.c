/* SPDX-License-Identifier: Apache-2.0 */
/* Finds NCCL: the user's, the process's, the framework's, the system's, ours. A symbol
 * newer than the library's version counts as absent: some distributions export more
 * than they implement. Never unloaded. */
#include "runtime/backend/nccl/nccl_dl.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/backend/nccl/card.h"
#include "runtime/base/mem.h"

#define HOW_TO_GET_IT                                                                  \
    " (nvidia-nccl-cu12 of PyPI or libnccl2 provides it; or set HVD_NCCL_LIB to its "  \
    "path)"

static const struct {
    const char *symbol;
    int least;
    size_t at;
} rows[] = {
#define NCCL_ROW(name, symbol, least, args)                                            \
    {#symbol, least, offsetof(struct nccl_api, name)},
    NCCL_SYMBOLS(NCCL_ROW) NCCL_TEXTS(NCCL_ROW)
#undef NCCL_ROW
};

void nccl_config_init(struct nccl_config *c, int version, const char *name)
{
    *c = (struct nccl_config){.size = sizeof(*c),
                              .magic = 0xcafebeef,
                              .version = (unsigned)version,
                              .blocking = 0,
                              .cga_cluster = INT_MIN,
                              .min_ctas = INT_MIN,
                              .max_ctas = INT_MIN,
                              .split_share = version >= 21801 ? 1 : INT_MIN,
                              .traffic_class = INT_MIN,
                              .comm_name = name && *name ? name : NULL,
                              .collnet = INT_MIN,
                              .cta_policy = INT_MIN,
                              .shrink_share = INT_MIN,
                              .nvls_ctas = INT_MIN};
}

/* Versions before 2.9 count 1000 * major + 100 * minor + patch. */
static int new_code(int version)
{
    return version < 10000 ? version / 1000 * 10000 + version % 1000 : version;
}

static void nccl_path_of(void *symbol, const char *asked, char ret[256])
{
    Dl_info info;
    char real[PATH_MAX];
    const char *path = dladdr(symbol, &info) && info.dli_fname ? info.dli_fname : asked;

    (void)snprintf(ret, 256, "%.255s", realpath(path, real) ? real : path);
}

/* The symbols of lib; *err: why it is not usable. */
static int
read_library(void *lib, const char *asked, struct nccl_api *ret, struct err *err)
{
    struct nccl_api api = {0};
    char text[24];
    int (*ask)(int *), version = 0;
    void *p = dlsym(lib, "ncclGetVersion");

    memcpy(&ask, &p, sizeof(ask));
    if (!p || ask(&version) != NCCL_OK)
        return err_set(err, -ENOTSUP, "%s: not an NCCL library", asked);
    nccl_path_of(p, asked, api.path);
    api.version = new_code(version);
    (void)nccl_version_text(api.version, text);
    if (api.version < NCCL_OLDEST)
        return err_set(err, -ENOTSUP,
                       "NCCL %s (%s) is too old: 2.10 or later is needed; "
                       "HVD_NCCL_LIB names another",
                       text, api.path);
    if (api.version >= 30000)
        return err_set(err, -ENOTSUP,
                       "NCCL %s (%s) is not known: 2.10 to 2.x is needed", text,
                       api.path);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        p = rows[i].least <= api.version ? dlsym(lib, rows[i].symbol) : NULL;
        if (!p && rows[i].least == 0)
            return err_set(err, -ENOTSUP, "NCCL %s (%s) has no %s", text, api.path,
                           rows[i].symbol);
        memcpy((char *)&api + rows[i].at, &p, sizeof(p));
    }
    api.has_nonblocking = api.init_config && api.finalize;
    api.has_split = api.split && api.has_nonblocking;
    api.has_register = api.register_ && api.deregister && api.mem_alloc && api.mem_free;
    api.has_shrink = api.shrink && api.revoke && api.has_nonblocking;
    *ret = api;
    return 0;
}

/* The error of the first library that exists decides. */
struct nccl_search {
    char tried[sizeof(((struct err *)NULL)->text)]; /* as much as fits */
    struct err first;
};

/* NCCL calls itself by name (ncclCommGetAsyncError at each collective). If all
 * libraries see the names of another NCCL (loaded globally, or linked into a global
 * library), ours must see its own first. */
static int own_names(const char *path)
{
    if (!dlsym(RTLD_DEFAULT, "ncclCommGetAsyncError"))
        return 0;
    void *lib = dlopen(path, RTLD_NOW | RTLD_NOLOAD); /* is it that one? */
    return lib ? 0 : RTLD_DEEPBIND;
}

static int try_one(struct nccl_search *s,
                   const char *what,
                   const char *path,
                   int flags,
                   struct nccl_api *ret)
{
    struct err err = ERR_INIT;
    void *lib =
        dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | own_names(path) | flags);

    if (lib) {
        int rc = read_library(lib, path, ret, &err);
        if (rc < 0 && s->first.code == 0)
            s->first = err;
        return rc;
    }
    const char *why = dlerror();
    if (flags & RTLD_NOLOAD)
        return -ENOENT; /* nothing was tried that a user could fix */
    /* the loader's message contains the path */
    size_t n = strlen(s->tried);
    (void)snprintf(s->tried + n, sizeof(s->tried) - n, "%s%s%s", n > 0 ? "; " : "",
                   what, why ? why : path);
    return -ENOENT;
}

static bool is_given(const char *s)
{
    return s && *s;
}

static int
try_all(struct nccl_search *s, const struct device_config *c, struct nccl_api *ret)
{
    char path[PATH_MAX];

    if (is_given(c->nccl_lib))
        return try_one(s, "HVD_NCCL_LIB: ", c->nccl_lib, 0, ret);
    if (try_one(s, "", "libnccl.so.2", RTLD_NOLOAD, ret) == 0) {
        ret->was_there = true;
        return 0;
    }
    if (is_given(c->nccl_hint)
        && try_one(s, "the framework's: ", c->nccl_hint, 0, ret) == 0)
        return 0;
    if (try_one(s, "", "libnccl.so.2", 0, ret) == 0)
        return 0;
    if (!is_given(c->bundle_dir))
        return -ENOENT;
    int n = snprintf(path, sizeof(path), "%s/nccl/libnccl.so.2", c->bundle_dir);
    if (n < 0 || (size_t)n >= sizeof(path))
        return -ENOENT;
    return try_one(s, "", path, 0, ret);
}

int nccl_load(const struct device_config *c, struct nccl_api *ret, struct err *err)
{
    struct nccl_search s = {.first = ERR_INIT};

    int rc = try_all(&s, c, ret);
    if (rc < 0 && s.first.code != 0)
        rc = err_set(err, s.first.code, "%s", s.first.text);
    else if (rc < 0)
        rc = err_set(err, -ENOENT, "NCCL was not found%s: tried %.340s",
                     is_given(c->nccl_lib) ? "" : HOW_TO_GET_IT, s.tried);
    return rc;
}

int nccl_fail(const struct nccl_api *api,
              nccl_comm comm,
              const char *call,
              int result,
              struct err *err)
{
    const char *last = api->last_error ? api->last_error(comm) : NULL;
    const char *text = api->error_text(result);
    int code = result == NCCL_ARGUMENT || result == NCCL_USAGE ? -EPROTO : -EIO;

    if (!last || !*last)
        return err_set(err, code, "%s: %s", call, text ? text : "error");
    return err_set(err, code, "%s: %s: %.300s", call, text ? text : "error", last);
}

/* "+cuda13.2" in the text of NCCL's version; NULL: none. */
static const char *find_cuda(const char *p, size_t n)
{
    static const char mark[] = "+cuda";
    const char *end = p + n;

    while ((p = memmem(p, (size_t)(end - p), mark, sizeof(mark) - 1)) != NULL) {
        p += sizeof(mark) - 1;
        if (end - p > 5 && *p >= '1' && *p <= '9')
            return p;
    }
    return NULL;
}

int nccl_misfit(const struct nccl_api *api, int driver_version, struct err *err)
{
    int fd = open(api->path, O_RDONLY | O_CLOEXEC), major = 0, minor = 0;
    char nccl[24];
    struct stat st;

    if (fd < 0)
        return 0;
    if (fstat(fd, &st) == 0 && st.st_size > 0) {
        size_t n = (size_t)st.st_size;
        void *map = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
        const char *at = map != MAP_FAILED ? find_cuda(map, n) : NULL;
        char text[8] = "";
        if (at)
            memcpy(text, at, 5);
        char *end = text;
        major = (int)strtol(text, &end, 10);
        minor = *end == '.' ? (int)strtol(end + 1, NULL, 10) : 0;
        if (map != MAP_FAILED)
            (void)munmap(map, n);
    }
    (void)close(fd);
    if (major <= driver_version / 1000)
        return 0;
    (void)err_set(
        err, -ENOTSUP,
        "NCCL %s (%s) is built for CUDA %d.%d, the driver is for CUDA %d.%d: use "
        "a build for CUDA %d or a driver for CUDA %d",
        nccl_version_text(api->version, nccl), api->path, major, minor,
        driver_version / 1000, driver_version % 1000 / 10, driver_version / 1000,
        major);
    return 1;
}
