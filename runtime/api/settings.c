/* SPDX-License-Identifier: Apache-2.0 */
/* One row per variable; garbage is refused loudly, because a typing error that is
 * silently a default costs days. Called by world.c. */
#include "runtime/api/settings.h"

#include <errno.h>
#include <stddef.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/base/parse.h"

enum kind { KIND_TIME, KIND_BYTES };

static const struct {
    const char *name;
    enum kind kind;
    size_t offset;
    uint64_t fallback, min, max; /* milliseconds or bytes */
} rows[] = {
    {"HOROVOD_START_TIMEOUT", KIND_TIME, offsetof(struct settings, start_timeout_ns),
     30000, 1, 86400000},
    {"HVD_PEER_TIMEOUT", KIND_TIME, offsetof(struct settings, peer_timeout_ns), 30000,
     500, 86400000},
    {"HOROVOD_STALL_CHECK_TIME_SECONDS", KIND_TIME,
     offsetof(struct settings, stall_warn_ns), 60000, 0, 86400000},
    {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", KIND_TIME,
     offsetof(struct settings, stall_fail_ns), 0, 0, 86400000},
    {"HOROVOD_FUSION_THRESHOLD", KIND_BYTES, offsetof(struct settings, fusion_bytes),
     128u << 20, 0, 1ull << 40},
};

static int read_row(size_t i, const char *s, struct settings *ret, struct err *err)
{
    uint64_t *field = (uint64_t *)(void *)((char *)ret + rows[i].offset);
    uint64_t v = rows[i].fallback;
    int r = 0;

    if (s && s[0] && rows[i].kind == KIND_TIME)
        r = parse_duration_ms(rows[i].name, s, rows[i].min, rows[i].max, &v, err);
    else if (s && s[0])
        r = parse_u64(rows[i].name, s, rows[i].min, rows[i].max, &v, err);
    if (r == 0)
        *field = rows[i].kind == KIND_TIME ? v * NS_PER_MS : v;
    return r;
}

int settings_read(getenv_fn get, void *arg, struct settings *ret, struct err *err)
{
    struct settings s = {.log_level = LOG_WARN};
    const char *level = get(arg, "HOROVOD_LOG_LEVEL");
    const char *no_stall = get(arg, "HOROVOD_STALL_CHECK_DISABLE");
    bool off = false;
    int r;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        r = read_row(i, get(arg, rows[i].name), &s, err);
        if (r < 0)
            return r;
    }
    if (no_stall && no_stall[0]) {
        r = parse_bool("HOROVOD_STALL_CHECK_DISABLE", no_stall, &off, err);
        if (r < 0)
            return r;
    }
    if (off)
        s.stall_warn_ns = s.stall_fail_ns = 0;
    if (level && level[0] && log_level_parse(level, &s.log_level) < 0)
        return err_set(
            err, -EINVAL,
            "HOROVOD_LOG_LEVEL: \"%.40s\" is none of trace, debug, info, warning, "
            "error, fatal",
            level);
    *ret = s;
    return 0;
}
