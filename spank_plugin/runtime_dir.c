/* SPDX-License-Identifier: Apache-2.0 */
/* Called in tasks, as the user. The version is read from the package's _version.py, a
 * text that runtime/python/module.mk writes: no code of the folder is loaded here. */
#include "spank_plugin/runtime_dir.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "spank_plugin/preflight.h"

#define VERSION_FILE      "/python/_hvd/_version.py"
#define VERSION_MAX_BYTES 65536

static void version_path(const struct plugin_config *cfg, char *ret, size_t size_bytes)
{
    (void)snprintf(ret, size_bytes, "%s" VERSION_FILE, cfg->dir); /* fits */
}

bool runtime_dir_is_absent(const struct plugin_config *cfg)
{
    char path[sizeof(cfg->dir) + sizeof(VERSION_FILE)];

    version_path(cfg, path, sizeof(path));
    return !cfg->dir_required && access(path, R_OK) != 0;
}

int runtime_dir_check(const struct plugin_config *cfg, struct err *err)
{
    char path[sizeof(cfg->dir) + sizeof(VERSION_FILE)];
    AUTOFREE char *text = NULL;
    struct err why = ERR_INIT;
    size_t n;

    version_path(cfg, path, sizeof(path));
    if (fd_read_file(path, VERSION_MAX_BYTES, &text, &n, &why))
        return err_set(err, why.code,
                       "plugstack.conf: dir=%s: there is no Python package: %s",
                       cfg->dir, why.text);
    return preflight_check_version(cfg->dir, text, HVD_VERSION_STRING, err);
}
