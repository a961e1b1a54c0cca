/* SPDX-License-Identifier: Apache-2.0 */
/* Which NCCL is used, and the messages about unusable ones. Copies of the stub lie in
 * folders that name their versions; each search has a process of its own. */
#include <limits.h>
#include <sys/stat.h>

#include "runtime/backend/nccl/nccl_dl.h"
#include "runtime/base/mem.h"
#include "tests/unit/gpu_fake.h"

static char root[PATH_MAX];

/* The path of a copy in root/dir/, made if it is not there. */
static const char *copy_in(const char *dir)
{
    static char path[8][PATH_MAX + 64];
    static unsigned n;
    char from[PATH_MAX], command[3 * PATH_MAX], *p = path[n++ % 8];
    ssize_t len = readlink("/proc/self/exe", from, sizeof(from) - 1);

    if (len < 0)
        abort();
    from[len] = '\0';
    *strstr(from, "/unit/") = '\0';
    (void)snprintf(p, sizeof(path[0]), "%s/%s/libnccl.so.2", root, dir);
    (void)snprintf(command, sizeof(command),
                   "mkdir -p %s/%s && cp %s/fakes/nccl_stub.so %s", root, dir, from, p);
    if (system(command) != 0) /* NOLINT(cert-env33-c): a test */
        abort();
    return p;
}

static int make_root(void **state)
{
    (void)snprintf(root, sizeof(root), "%s/hvd-nccl-XXXXXX",
                   getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[PATH_MAX + 16];

    (void)snprintf(command, sizeof(command), "rm -r %s", root);
    return system(command); /* NOLINT(cert-env33-c): a test */
}

/* Which library is used. A name of HVD_NCCL_LIB wins, then what is loaded, then the
 * hint. */
static const struct search {
    const char *loaded; /* before, NULL: none */
    int flags;
    const char *lib, *hint;
    int version;
} searches[] = {
    {"21403", RTLD_NOW, "22705", "22101", 22705},
    {"21403", RTLD_NOW, NULL, "22101", 21403},
    {NULL, 0, NULL, "22101", 22101},
#ifndef __SANITIZE_ADDRESS__ /* which refuses RTLD_DEEPBIND */
    /* Another one whose names all libraries see: NCCL calls itself by name, and a
     * mixture of two versions would read the communicators of one as the other's. (The
     * stub asks where its own function lies.) */
    {"21403", RTLD_NOW | RTLD_GLOBAL, "22705", NULL, 22705},
#endif
};

static int finds_one(const void *row)
{
    const struct search *s = row;
    struct device_config c = {.nccl_lib = s->lib ? copy_in(s->lib) : NULL,
                              .nccl_hint = s->hint ? copy_in(s->hint) : NULL};
    struct nccl_api api;
    struct err err = ERR_INIT;

    CHILD_NEEDS(!s->loaded || dlopen(copy_in(s->loaded), s->flags));
    CHILD_NEEDS(nccl_load(&c, &api, &err) == 0);
    CHILD_NEEDS(api.version == s->version);
    CHILD_NEEDS(!c.nccl_lib || !strcmp(api.path, c.nccl_lib));
    return 0;
}

UNIT_TEST(the_first_of_path_loaded_and_hint_is_used)
{
    ASSERT_CHILDREN(finds_one, searches);
}

CHILD_TEST(a_name_of_the_user_is_the_only_one_tried)
{
    struct nccl_api api;
    struct err err = ERR_INIT;
    struct device_config c = {.nccl_lib = "/none/libnccl.so.2",
                              .nccl_hint = copy_in("22101")};

    CHILD_NEEDS(nccl_load(&c, &api, &err) == -ENOENT);
    CHILD_NEEDS(!strncmp(
        err.text, "NCCL was not found: tried HVD_NCCL_LIB: /none/libnccl.so.2", 58));
    CHILD_NEEDS(!strstr(err.text, "22101"));
    c.nccl_lib = copy_in("20804");
    CHILD_NEEDS(nccl_load(&c, &api, &err) == -ENOTSUP);
    return 0;
}

/* The fake lies in the loader's path. */
CHILD_TEST(the_loaders_is_used_before_the_bundled_one)
{
    struct nccl_api api;
    struct err err = ERR_INIT;
    struct device_config c = {.nccl_hint = "/none/libnccl.so.2", .bundle_dir = root};

    (void)setenv("HVD_FAKE_NCCL", "22304", 1);
    (void)copy_in("nccl");
    CHILD_NEEDS(nccl_load(&c, &api, &err) == 0);
    CHILD_NEEDS(api.version == 22304);
    CHILD_NEEDS(strstr(api.path, "/fakes/libnccl.so.2"));
    return 0;
}

CHILD_TEST(unusable_ones_are_refused)
{
    static const struct {
        const char *dir, *text;
    } rows[] = {
        {"20804", "NCCL 2.8.4 (%s) is too old: 2.10 or later is needed"},
        {"2804", "NCCL 2.8.4 (%s) is too old: 2.10 or later is needed"},
        {"20999", "NCCL 2.9.99 (%s) is too old: 2.10 or later is needed; HVD_NCCL_LIB "
                  "names another"},
        {"30000", "NCCL 3.0.0 (%s) is not known: 2.10 to 2.x is needed"},
        {"other", "%s: not an NCCL library"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nccl_api api;
        struct err err = ERR_INIT;
        struct device_config c = {.nccl_lib = copy_in(rows[i].dir)};
        CHILD_NEEDS(nccl_load(&c, &api, &err) == -ENOTSUP);
        const char *mark = strstr(rows[i].text, "%s");
        CHILD_NEEDS(!strncmp(err.text, rows[i].text, (size_t)(mark - rows[i].text)));
        CHILD_NEEDS(strstr(err.text, c.nccl_lib));
        CHILD_NEEDS(strstr(err.text, mark + 2));
    }
    return 0;
}

CHILD_TEST(what_a_version_has_is_known)
{
    static const struct {
        const char *dir;
        bool nonblocking, split, registers, shrink, last_error;
    } rows[] = {
        {"21000", 0, 0, 0, 0, 0}, {"21304", 0, 0, 0, 0, 1}, {"21403", 1, 0, 0, 0, 1},
        {"21801", 1, 1, 0, 0, 1}, {"21901", 1, 1, 1, 0, 1}, {"22703", 1, 1, 1, 0, 1},
        {"22807", 1, 1, 1, 1, 1}, {"23007", 1, 1, 1, 1, 1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nccl_api api;
        struct err err = ERR_INIT;
        struct device_config c = {.nccl_lib = copy_in(rows[i].dir)};
        CHILD_NEEDS(nccl_load(&c, &api, &err) == 0);
        CHILD_NEEDS(api.has_nonblocking == rows[i].nonblocking);
        CHILD_NEEDS(api.has_split == rows[i].split);
        CHILD_NEEDS(api.has_register == rows[i].registers);
        CHILD_NEEDS(api.has_shrink == rows[i].shrink);
        CHILD_NEEDS((api.last_error != NULL) == rows[i].last_error);
        CHILD_NEEDS((api.split != NULL) == rows[i].split);
        CHILD_NEEDS(api.all_reduce && api.recv && api.error_text);
    }
    return 0;
}

CHILD_TEST(a_build_for_a_newer_cuda_is_reported)
{
    struct nccl_api api;
    struct err err = ERR_INIT;
    struct device_config c = {.nccl_lib = copy_in("23007")};
    char want[PATH_MAX + 256];

    CHILD_NEEDS(nccl_load(&c, &api, &err) == 0);
    CHILD_NEEDS(nccl_misfit(&api, 13000, &err) == 0);
    CHILD_NEEDS(nccl_misfit(&api, 12040, &err) == 1);
    (void)snprintf(
        want, sizeof(want),
        "NCCL 2.30.7 (%s) is built for CUDA 13.2, the driver is for CUDA 12.4: "
        "use a build for CUDA 12 or a driver for CUDA 13",
        c.nccl_lib);
    CHILD_NEEDS(!strcmp(err.text, want));
    (void)snprintf(api.path, sizeof(api.path), "/none");
    CHILD_NEEDS(nccl_misfit(&api, 12040, &err) == 0);
    return 0;
}

static const char *some_text(int result)
{
    return result == NCCL_REMOTE ? "remote process exited" : "invalid usage";
}

static const char *some_last(nccl_comm c)
{
    return c ? "" : "socket closed";
}

UNIT_TEST(failures_contain_the_last_error_of_nccl)
{
    struct nccl_api api = {.error_text = some_text, .last_error = some_last};
    struct err err = ERR_INIT;
    int some;

    assert_int_equal(nccl_fail(&api, NULL, "ncclAllReduce", NCCL_REMOTE, &err), -EIO);
    assert_string_equal(err.text,
                        "ncclAllReduce: remote process exited: socket closed");
    assert_int_equal(
        nccl_fail(&api, (nccl_comm)(void *)&some, "ncclSend", NCCL_USAGE, &err),
        -EPROTO);
    assert_string_equal(err.text, "ncclSend: invalid usage");
    api.last_error = NULL;
    assert_int_equal(nccl_fail(&api, NULL, "ncclSend", NCCL_USAGE, &err), -EPROTO);
}

UNIT_MAIN(make_root, remove_root)
