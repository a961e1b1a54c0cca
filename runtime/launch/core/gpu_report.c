/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the lines "key value" of hvd-gpu, which has the same version as this program.
 * The values come from drivers and are written to logs, so control characters are
 * replaced by '?' and double quotes by single ones. Called by gpu_info.c. */
#include "runtime/launch/core/gpu_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

#define LINE_BYTES 512

/* The value after the key; NULL: the line has another key. */
static const char *line_value(const char *line, const char *key)
{
    size_t n = strlen(key);

    return strncmp(line, key, n) == 0 && line[n] == ' ' && line[n + 1] ? line + n + 1
                                                                       : NULL;
}

/* "INDEX UUID SM MIB mig|- NAME" */
static void gpu_report_read_gpu(const char *value, struct gpu_report *r)
{
    struct gpu_report_gpu g = {0};
    unsigned long long mib;
    char mig[8];
    int at = 0;

    if (r->n_gpus == ARRAY_LEN(r->gpus)
        || sscanf(value, "%9u %47s %9u %18llu %7s %n", &g.index, g.uuid, &g.sm, &mib,
                  mig, &at)
               != 5
        || at == 0)
        return;
    g.memory_mib = mib;
    g.is_mig = strcmp(mig, "mig") == 0;
    (void)snprintf(g.name, sizeof(g.name), "%s", value + at);
    r->gpus[r->n_gpus++] = g;
}

static void
text_append(char *to, size_t size_bytes, const char *separator, const char *text)
{
    size_t n = strlen(to);

    (void)snprintf(to + n, size_bytes - n, "%s%s", n ? separator : "", text);
}

/* "I J LINKS"; J is "-" for switches and other devices */
static void gpu_report_read_nvlink(const char *value, struct gpu_report *r)
{
    char a[8], b[8], links[8], text[40];

    if (sscanf(value, "%7s %7s %7s", a, b, links) != 3)
        return;
    (void)snprintf(text, sizeof(text), "%s-%s:%s", a, strcmp(b, "-") ? b : "switch",
                   links);
    text_append(r->nvlinks, sizeof(r->nvlinks), " ", text);
}

/* "DEVICE PORT RATE" */
static void gpu_report_read_ib(const char *value, struct gpu_report *r)
{
    char device[64], port[8], text[160];
    int at = 0;

    if (sscanf(value, "%63s %7s %n", device, port, &at) != 2 || at == 0)
        return;
    (void)snprintf(text, sizeof(text), "%s/%s %.64s", device, port, value + at);
    text_append(r->ib, sizeof(r->ib), ", ", text);
}

static void gpu_report_read_line(const char *line, struct gpu_report *r)
{
    const struct {
        const char *key;
        char *to;
        size_t size_bytes;
    } texts[] = {{"driver", r->driver, sizeof(r->driver)},
                 {"cuda", r->cuda, sizeof(r->cuda)},
                 {"nccl", r->nccl, sizeof(r->nccl)},
                 {"nccl-path", r->nccl_path, sizeof(r->nccl_path)},
                 {"kernels", r->kernels, sizeof(r->kernels)},
                 {"problem", r->problem, sizeof(r->problem)}};
    const char *value;

    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if ((value = line_value(line, texts[i].key)) != NULL)
            (void)snprintf(texts[i].to, texts[i].size_bytes, "%s", value);
    if ((value = line_value(line, "gpu")) != NULL)
        gpu_report_read_gpu(value, r);
    if ((value = line_value(line, "nvlink")) != NULL)
        gpu_report_read_nvlink(value, r);
    if ((value = line_value(line, "ib")) != NULL)
        gpu_report_read_ib(value, r);
}

void gpu_report_read(const char *text, struct gpu_report *ret)
{
    char line[LINE_BYTES];

    memset(ret, 0, sizeof(*ret));
    for (const char *p = text; *p; p += *p == '\n') {
        size_t n = strcspn(p, "\n");

        if (n < sizeof(line) && p[n] == '\n') {
            memcpy(line, p, n);
            line[n] = '\0';
            for (char *c = line; *c; c++)
                *c = (unsigned char)*c < 0x20 || *c == 0x7f ? '?'
                     : *c == '"'                            ? '\''
                                                            : *c;
            gpu_report_read_line(line, ret);
        }
        p += n;
    }
}

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.10  Wed .." */
void gpu_report_driver(const char *version_file, char *ret, size_t size_bytes)
{
    const char *p = version_file;

    ret[0] = '\0';
    for (p += strcspn(p, "0123456789\n"); *p && *p != '\n';
         p += strcspn(p, "0123456789\n")) {
        size_t n = strspn(p, "0123456789.");
        bool is_word = p > version_file && p[-1] == ' ' && strchr(" \t\n", p[n]);

        if (is_word && memchr(p, '.', n) && n < size_bytes) {
            (void)snprintf(ret, size_bytes, "%.*s", (int)n, p);
            return;
        }
        p += n;
    }
}

static bool gpu_is_alike(const struct gpu_report_gpu *a, const struct gpu_report_gpu *b)
{
    return a->sm == b->sm && a->memory_mib == b->memory_mib && a->is_mig == b->is_mig
           && strcmp(a->name, b->name) == 0;
}

/* Number of GPUs like g; 0: an earlier GPU is like it and was printed. */
static size_t gpu_count_alike(const struct gpu_report *r,
                              const struct gpu_report_gpu *g)
{
    size_t n = 0;

    for (const struct gpu_report_gpu *o = r->gpus; o < r->gpus + r->n_gpus; o++) {
        if (o < g && gpu_is_alike(o, g))
            return 0;
        n += gpu_is_alike(o, g);
    }
    return n;
}

void gpu_report_line(const struct gpu_report *r, struct strbuf *out)
{
    const char *sep = "; ";

    strbuf_puts(out, r->n_gpus ? "GPUs:" : "GPUs: none");
    for (const struct gpu_report_gpu *g = r->gpus; g < r->gpus + r->n_gpus; g++) {
        size_t n = gpu_count_alike(r, g);

        if (n)
            strbuf_printf(out, "%s %zu x %s (%llu MiB, sm_%u%s)",
                          g == r->gpus ? "" : ",", n, g->name,
                          (unsigned long long)g->memory_mib, g->sm,
                          g->is_mig ? ", MIG" : "");
    }
    const struct {
        const char *name, *value;
    } versions[] = {{"driver", r->driver}, {"CUDA", r->cuda}, {"NCCL", r->nccl}};
    for (size_t i = 0; i < ARRAY_LEN(versions); i++)
        if (*versions[i].value) {
            strbuf_printf(out, "%s%s %s", sep, versions[i].name, versions[i].value);
            sep = ", ";
        }
    if (*r->nccl && *r->nccl_path)
        strbuf_printf(out, " (%s)", r->nccl_path);
    if (*r->nvlinks)
        strbuf_printf(out, "; NVLink %s", r->nvlinks);
    if (*r->ib)
        strbuf_printf(out, "; InfiniBand %s", r->ib);
    if (gpu_report_lacks_nccl(r))
        strbuf_puts(out, "; " GPU_REPORT_NO_NCCL);
    else if (*r->problem)
        strbuf_printf(out, "; %s", r->problem);
}

bool gpu_report_lacks_nccl(const struct gpu_report *r)
{
    return strncmp(r->problem, "NCCL was not found", 18) == 0;
}
