/* SPDX-License-Identifier: Apache-2.0 */
/* One "key=value" per line; # starts a comment. Every key must occur once: a truncated
 * or edited file is refused as a whole. Called by observe/autotune.c. */
#include "runtime/core/tune_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/parse.h"

enum key {
    KEY_VERSION,
    KEY_RANKS,
    KEY_HOSTS,
    KEY_FUSION,
    KEY_CYCLE,
    KEY_WHOLE,
    KEY_CHUNK,
    KEY_COUNT
};

static const struct {
    const char *name;
    uint64_t min, max;
} keys[KEY_COUNT] = {
    [KEY_VERSION] = {"version", 1, UINT32_MAX},
    [KEY_RANKS] = {"ranks", 1, UINT32_MAX},
    [KEY_HOSTS] = {"hosts", 1, UINT32_MAX},
    [KEY_FUSION] = {"fusion_threshold", 0, 1ull << 40},
    [KEY_CYCLE] = {"cycle_time_us", 0, TUNING_GATHER_MAX_NS / 1000},
    [KEY_WHOLE] = {"tcp_whole_bytes", 0, 1ull << 40},
    [KEY_CHUNK] = {"tcp_chunk_bytes", 0, 1ull << 40},
};

void tune_file_write(const struct tune_file *f, struct strbuf *out)
{
    const uint64_t v[KEY_COUNT] = {
        [KEY_VERSION] = TUNE_FILE_VERSION,
        [KEY_RANKS] = f->ranks,
        [KEY_HOSTS] = f->hosts,
        [KEY_FUSION] = f->tuning.fusion_bytes,
        [KEY_CYCLE] = f->tuning.gather_ns / 1000,
        [KEY_WHOLE] = f->tuning.whole_bytes,
        [KEY_CHUNK] = f->tuning.chunk_bytes,
    };

    strbuf_puts(out, "# found by HOROVOD_AUTOTUNE=1, used by HVD_AUTOTUNE_FILE\n");
    for (int k = 0; k < KEY_COUNT; k++)
        strbuf_printf(out, "%s=%llu\n", keys[k].name, (unsigned long long)v[k]);
}

static int key_find(const char *name)
{
    for (int k = 0; k < KEY_COUNT; k++)
        if (strcmp(keys[k].name, name) == 0)
            return k;
    return -1;
}

static int tune_file_read_line(const char *path,
                               unsigned no,
                               char *line,
                               uint64_t *v,
                               unsigned *seen,
                               struct err *err)
{
    char *eq = strchr(line, '='), field[400];
    int k;

    if (line[0] == 0 || line[0] == '#')
        return 0;
    if (!eq)
        return err_set(err, -EINVAL, "%.300s, line %u: \"%.60s\" is not key=value",
                       path, no, line);
    *eq = 0;
    k = key_find(line);
    if (k < 0)
        return err_set(
            err, -EINVAL,
            "%.300s, line %u: \"%.60s\" must be one of: version, ranks, hosts, "
            "fusion_threshold, cycle_time_us, tcp_whole_bytes, tcp_chunk_bytes",
            path, no, line);
    if (*seen & 1u << k)
        return err_set(err, -EINVAL, "%.300s, line %u: %s a second time", path, no,
                       keys[k].name);
    *seen |= 1u << k;
    (void)snprintf(field, sizeof(field), "%.300s, line %u: %s", path, no, keys[k].name);
    return parse_u64(field, eq + 1, keys[k].min, keys[k].max, &v[k], err);
}

int tune_file_read(const char *path, char *text, struct tune_file *ret, struct err *err)
{
    uint64_t v[KEY_COUNT] = {0};
    unsigned no = 1, seen = 0;

    for (char *line = text, *next; line; line = next, no++) {
        int rc;

        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        rc = tune_file_read_line(path, no, line, v, &seen, err);
        if (rc < 0)
            return rc;
    }
    for (int k = 0; k < KEY_COUNT; k++)
        if (!(seen & 1u << k))
            return err_set(err, -EINVAL, "%.300s: has no %s", path, keys[k].name);
    if (v[KEY_VERSION] != TUNE_FILE_VERSION)
        return err_set(err, -EPROTO, "%.300s: version %llu, this library writes %d",
                       path, (unsigned long long)v[KEY_VERSION], TUNE_FILE_VERSION);
    *ret = (struct tune_file){
        .ranks = (uint32_t)v[KEY_RANKS],
        .hosts = (uint32_t)v[KEY_HOSTS],
        .tuning = {.fusion_bytes = v[KEY_FUSION],
                   .gather_ns = v[KEY_CYCLE] * 1000,
                   .whole_bytes = v[KEY_WHOLE],
                   .chunk_bytes = v[KEY_CHUNK]},
    };
    return 0;
}

void tune_log_head(struct strbuf *out)
{
    strbuf_puts(out, "sample,warmup,cycle_time_ms,tensor_fusion_threshold,"
                     "tcp_whole_bytes,tcp_chunk_bytes,score\n");
}

/* As Horovod has them: the threshold in MiB, the score in bytes a microsecond. */
void tune_log_line(uint32_t n, const struct tune_sample *s, struct strbuf *out)
{
    strbuf_printf(out, "%u,%d,%g,%g,%llu,%llu,%.3f\n", n, s->is_warmup,
                  (double)s->tuning.gather_ns / 1e6,
                  (double)s->tuning.fusion_bytes / (1 << 20),
                  (unsigned long long)s->tuning.whole_bytes,
                  (unsigned long long)s->tuning.chunk_bytes, s->bytes_per_s / 1e6);
}
