/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_real LIBRARY VERSION: checks NVIDIA's NCCL from its wheels, without a driver.
 * TAP. Checks everything that needs no GPU: nccl_load accepts it, its version is the
 * wheel's, every symbol that nccl_dl.h requires exists and none that it lists for
 * later versions, the texts of its results, and the answers of calls that find no
 * driver. The fake NCCL gives the same. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/nccl/nccl_dl.h"
#include "tests/gpu/tap/point.h"

static void check_symbols(const struct nccl_api *api)
{
    void *lib = dlopen(api->path, RTLD_NOW | RTLD_NOLOAD);
    unsigned n = 0;
#define LOOK(name, symbol, least, args)                                                \
    do {                                                                               \
        bool is_there = lib && dlsym(lib, #symbol);                                    \
        bool is_due = (least) <= api->version;                                         \
        if (is_there != is_due || (api->name != NULL) != is_due)                       \
            tap_point(false, "%s is %s in version %d", #symbol,                        \
                      is_there ? "there already" : "not there", api->version);         \
        n++;                                                                           \
    } while (0);
    NCCL_SYMBOLS(LOOK)
    NCCL_TEXTS(LOOK)
    tap_point(lib != NULL, "%u symbols were looked up in %s", n, api->path);
}

/* As the fake has them. */
static void check_texts(const struct nccl_api *api)
{
    static const struct {
        const char *begin;
        int least;
    } rows[] = {{"no error", 0},
                {"unhandled cuda error", 0},
                {"unhandled system error", 0},
                {"internal error", 0},
                {"invalid argument", 0},
                {"invalid usage", 0},
                {"remote process exited or there was a network error", 0},
                {"NCCL operation in progress", 21400},
                {"timeout", 23000}};
    for (int i = 0; i <= NCCL_TIMEOUT; i++) {
        const char *got = api->error_text(i);
        const char *want =
            rows[i].least <= api->version ? rows[i].begin : "unknown result code";
        tap_point(strncmp(got, want, strlen(want)) == 0, "result %d: %s", i, got);
    }
}

/* Calls that need no driver. */
static void check_calls(const struct nccl_api *api)
{
    struct nccl_id id = {{0}}, zero = {{0}};
    int async = -1, old = api->version < 21400;

    tap_point(api->unique_id(&id) == NCCL_OK && memcmp(&id, &zero, sizeof(id)) != 0,
              "ncclGetUniqueId needs no driver");
    tap_point(api->group_start() == NCCL_OK, "ncclGroupStart");
    int r = api->group_end();
    tap_point(r == NCCL_OK || (old && r == NCCL_CUDA), "ncclGroupEnd of nothing: %d",
              r);
    r = api->async_error(NULL, &async);
    tap_point(r == NCCL_ARGUMENT, "ncclCommGetAsyncError of nothing: %d", r);
    tap_point(api->abort(NULL) == NCCL_OK, "ncclCommAbort of nothing");
    tap_point(api->destroy(NULL) == NCCL_OK, "ncclCommDestroy of nothing");
    r = api->all_reduce(NULL, NULL, 1, NCCL_F32, NCCL_SUM, NULL, NULL);
    tap_point(r == NCCL_ARGUMENT || (old && r == NCCL_CUDA),
              "ncclAllReduce of nothing: %d", r);
}

/* Also one that is not to block fails at once and gives no communicator; the fake's
 * init_refused. */
static void inits_without_a_driver(const struct nccl_api *api)
{
    struct nccl_id id = {{0}};
    struct nccl_config config;
    nccl_comm c = NULL;

    (void)api->unique_id(&id);
    int r = api->init(&c, 1, id, 0);
    const char *said = api->last_error ? api->last_error(NULL) : "driver";
    tap_point(r == NCCL_CUDA && !c && strstr(said, "driver"),
              "ncclCommInitRank: %d, %s", r, said);
    if (!api->init_config)
        return;
    nccl_config_init(&config, api->version, "x");
    r = api->init_config(&c, 1, id, 0, &config);
    tap_point(r == NCCL_CUDA && !c, "ncclCommInitRankConfig, not blocking: %d", r);
}

int main(int argc, char **argv)
{
    struct device_config config = {.nccl_lib = argc > 1 ? argv[1] : ""};
    struct err err = ERR_INIT;
    struct nccl_api api;

    if (argc != 3)
        return 2;
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (nccl_load(&config, &api, &err) != 0) {
        tap_point(false, "%s", err.text);
        return 1;
    }
    tap_point(api.version == atoi(argv[2]), "version %d", api.version);
    check_symbols(&api);
    check_texts(&api);
    int misfit = nccl_misfit(&api, 10000, &err);
    tap_point(misfit == 1, "%s", misfit ? err.text : "no misfit, or unknown CUDA");
    check_calls(&api);
    if (!dlopen(CUDA_LIBRARY, RTLD_NOW))
        inits_without_a_driver(&api);
    (void)printf("1..%d\n", n_points);
    return n_failed > 0;
}
