/* SPDX-License-Identifier: Apache-2.0 */
/* PMIx by dlopen("libpmix.so.2"), the soname of PMIx 2 to 5: Open MPI's mpirun, srun
 * --mpi=pmix, prun. Building requires nothing of PMIx; of its binary interface only
 * this is used, unchanged since version 2:
 *
 *   pmix_proc_t   char nspace[256]; uint32_t rank
 *   pmix_value_t  uint16_t type; 6 bytes; a union of 24 bytes
 *   pmix_info_t   char key[512]; uint32_t flags; 4 bytes; pmix_value_t
 *
 * PMIx_Init and PMIx_Finalize are counted, and MPI uses the same library, so MPI_Init
 * may come before or after us. PMIx_Finalize is called only at exit: some servers do
 * not accept a process again that has left, and mpirun treats a process that exits
 * without it as crashed.
 *
 * A second program of the same rank is not supported (README.md). Where the server shows
 * the values of the first one, the second at least does not read them: each program uses
 * its own key, the first unused hvd-N of this rank. PMIx 4.2 does not show them.
 *
 * These calls have no deadline: bootstrap.c runs them in a thread. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/bootstrap/carrier.h"

#define LIBRARY       "libpmix.so.2"
#define MAX_PROGRAMS  1000
#define RANK_WILDCARD (UINT32_MAX - 1)
enum { PX_SUCCESS = 0, PX_BOOL = 1, PX_STRING = 3, PX_UINT32 = 14, PX_GLOBAL = 3 };

struct px_proc {
    char nspace[256];
    uint32_t rank;
};
struct px_value {
    uint16_t type;
    union {
        bool flag;
        char *string;
        uint32_t uint32;
        uint64_t room[3];
    } data;
};
struct px_info {
    char key[512];
    uint32_t flags;
    struct px_value value;
};
_Static_assert(sizeof(struct px_proc) == 260, "as in pmix_common.h");
_Static_assert(sizeof(struct px_value) == 32, "as in pmix_common.h");
_Static_assert(sizeof(struct px_info) == 552, "as in pmix_common.h");

struct pmix {
    struct carrier base;
    struct px_proc me;
    char key[16];
    int (*init)(struct px_proc *, struct px_info *, size_t);
    int (*put)(uint8_t scope, const char *key, struct px_value *);
    int (*commit)(void);
    int (*fence)(const struct px_proc *, size_t, const struct px_info *, size_t);
    int (*get)(const struct px_proc *,
               const char *key,
               const struct px_info *,
               size_t,
               struct px_value **);
    int (*finalize)(const struct px_info *, size_t);
    const char *(*error)(int);
};

static struct pmix *pmix_of(struct carrier *ch)
{
    return (struct pmix *)(void *)ch;
}

static int pmix_failed(const struct pmix *p, const char *what, int px, struct err *err)
{
    return err_set(err, -EIO, "%s of the launcher's PMIx: %s (%d)", what, p->error(px),
                   px);
}

/* --- the library --- */

static int library_find_symbol(void *lib, const char *name, void *ret, struct err *err)
{
    void *f = dlsym(lib, name);

    if (!f)
        return err_set(err, -ENOENT, LIBRARY " has no %s", name);
    memcpy(ret, &f, sizeof(f)); /* C has no cast from void * to a function pointer */
    return 0;
}

/* The library is never unloaded, because it has a thread. */
static int pmix_load(struct pmix *p, struct err *err)
{
    void *lib = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (!lib)
        return err_set(err, -ENOENT, "%.300s", dlerror());
    int rc = library_find_symbol(lib, "PMIx_Init", &p->init, err);
    rc = rc ? rc : library_find_symbol(lib, "PMIx_Put", &p->put, err);
    rc = rc ? rc : library_find_symbol(lib, "PMIx_Commit", &p->commit, err);
    rc = rc ? rc : library_find_symbol(lib, "PMIx_Fence", &p->fence, err);
    rc = rc ? rc : library_find_symbol(lib, "PMIx_Get", &p->get, err);
    rc = rc ? rc : library_find_symbol(lib, "PMIx_Finalize", &p->finalize, err);
    return rc ? rc : library_find_symbol(lib, "PMIx_Error_string", &p->error, err);
}

static struct px_info px_info_true(const char *key)
{
    struct px_info i = {.value = {.type = PX_BOOL, .data = {.flag = true}}};

    (void)snprintf(i.key, sizeof(i.key), "%s", key);
    return i;
}

/* The library allocates with malloc, and its macros free with free. */
static void free_value(struct px_value *v)
{
    if (v->type == PX_STRING)
        free(v->data.string);
    free(v);
}

/* --- opening --- */

static int pmix_read_size(struct pmix *p, struct err *err)
{
    struct px_proc all = p->me;
    struct px_value *v = NULL;

    all.rank = RANK_WILDCARD;
    int px = p->get(&all, "pmix.job.size", NULL, 0, &v);
    if (px != PX_SUCCESS)
        return pmix_failed(p, "the size", px, err);
    uint32_t size = v->type == PX_UINT32 ? v->data.uint32 : 0;
    free_value(v);
    if (size == 0 || size > WORLD_MAX_RANKS || p->me.rank >= size)
        return err_set(err, -EPROTO, "PMIX_RANK=%u, but PMIx reports %u ranks",
                       p->me.rank, size);
    p->base.size = size;
    return 0;
}

static int choose_key(struct pmix *p, struct err *err)
{
    const struct px_info here =
        px_info_true("pmix.optional"); /* no request to the server */

    for (int i = 0; i < MAX_PROGRAMS; i++) {
        struct px_value *v = NULL;

        (void)snprintf(p->key, sizeof(p->key), "hvd-%d", i);
        if (p->get(&p->me, p->key, &here, 1, &v) != PX_SUCCESS)
            return 0;
        free_value(v);
    }
    return err_set(err, -E2BIG, "more than %d programs in one rank of mpirun",
                   MAX_PROGRAMS);
}

static int pmix_enter(struct pmix *p, struct err *err)
{
    const char *name = getenv("PMIX_NAMESPACE");
    int px = p->init(&p->me, NULL, 0);

    if (px != PX_SUCCESS)
        return err_set(err, -ENOENT, "PMIx_Init: %s (%d)", p->error(px), px);
    if (name
        && strcmp(name, p->me.nspace) != 0) { /* a singleton: no server was found */
        (void)p->finalize(NULL, 0);
        return err_set(err, -ENOENT, "PMIx_Init cannot reach the server of %.80s",
                       name);
    }
    p->base.rank = p->me.rank;
    (void)snprintf(p->base.job, sizeof(p->base.job), "%.*s", JOB_ID_MAX - 1,
                   p->me.nspace);
    int rc = pmix_read_size(p, err);
    if (rc == 0)
        rc = choose_key(p, err);
    if (rc)
        (void)p->finalize(NULL, 0);
    return rc;
}

static int pmix_open(const struct contract *c,
                     uint64_t deadline_ns,
                     struct carrier **ret,
                     struct err *err)
{
    struct pmix *p = mem_zalloc(sizeof(*p));

    (void)c;
    (void)deadline_ns;
    if (!p)
        return err_set(err, -ENOMEM, "out of memory");
    p->base.ops = &carrier_pmix;
    int rc = pmix_load(p, err);
    if (rc == 0)
        rc = pmix_enter(p, err);
    if (rc) {
        mem_free(p);
        return rc;
    }
    *ret = &p->base;
    return 0;
}

/* --- put, fence, get --- */

static int
pmix_put(struct carrier *ch, const char *value, uint64_t deadline_ns, struct err *err)
{
    struct pmix *p = pmix_of(ch);
    AUTOFREE char *copy = mem_strdup(value);
    struct px_value v = {.type = PX_STRING, .data = {.string = copy}};

    (void)deadline_ns;
    if (!copy)
        return err_set(err, -ENOMEM, "out of memory");
    int px = p->put(PX_GLOBAL, p->key, &v);
    if (px == PX_SUCCESS)
        px = p->commit();
    return px == PX_SUCCESS ? 0 : pmix_failed(p, "PMIx_Put", px, err);
}

static int pmix_fence(struct carrier *ch, uint64_t deadline_ns, struct err *err)
{
    struct pmix *p = pmix_of(ch);
    const struct px_info collect = px_info_true("pmix.collect");

    (void)deadline_ns;
    int px = p->fence(NULL, 0, &collect, 1);
    return px == PX_SUCCESS ? 0 : pmix_failed(p, "PMIx_Fence", px, err);
}

static int pmix_get(struct carrier *ch,
                    uint32_t rank,
                    char *ret,
                    size_t size_bytes,
                    uint64_t deadline_ns,
                    struct err *err)
{
    struct pmix *p = pmix_of(ch);
    struct px_proc who = p->me;
    struct px_value *v = NULL;

    (void)deadline_ns;
    who.rank = rank;
    int px = p->get(&who, p->key, NULL, 0, &v);
    if (px != PX_SUCCESS)
        return pmix_failed(p, "PMIx_Get", px, err);
    bool is_good =
        v->type == PX_STRING && v->data.string && strlen(v->data.string) < size_bytes;
    if (is_good)
        (void)snprintf(ret, size_bytes, "%s", v->data.string);
    free_value(v);
    return is_good ? 0
                   : err_set(err, -EPROTO, "rank %u published an invalid value", rank);
}

static void pmix_finish(struct carrier *ch)
{
    struct pmix *p = pmix_of(ch);

    (void)p->finalize(NULL, 0); /* at exit: an error cannot be reported */
    mem_free(p);
}

const struct carrier_ops carrier_pmix = {pmix_open, pmix_put, pmix_fence, pmix_get,
                                         pmix_finish};
