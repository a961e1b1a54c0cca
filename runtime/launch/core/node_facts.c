/* SPDX-License-Identifier: Apache-2.0 */
/* Called by slurm_facts.c, which writes, and slurm_check.c, which judges. */
#include "runtime/launch/core/node_facts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/launch/core/memlock.h"
#include "runtime/launch/core/step_line.h"

#define MIB           (1024u * 1024u)
#define SHM_MIN_BYTES (64ull * MIB) /* ranks of a node exchange data there */

static const struct {
    const char *name;
    size_t at;
} texts[] = {
#define FACT_ROW(name) {#name, offsetof(struct node_facts, name)},
    NODE_FACT_TEXTS(FACT_ROW)
#undef FACT_ROW
};
static const struct {
    const char *name;
    size_t at;
} numbers[] = {
    {"memlock", offsetof(struct node_facts, memlock_bytes)},
    {"shm", offsetof(struct node_facts, shm_bytes)},
    {"gpus", offsetof(struct node_facts, gpus)},
    {"rdma", offsetof(struct node_facts, rdma)},
};

void node_facts_put(const struct node_facts *f, struct strbuf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        strbuf_printf(
            out, "%s=%llu\t", numbers[i].name,
            (unsigned long long)*(const uint64_t *)((const char *)f + numbers[i].at));
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        const char *p = (const char *)f + texts[i].at;

        strbuf_printf(out, "%s%s=", i ? "\t" : "", texts[i].name);
        for (; *p; p++)
            strbuf_putc(out, (unsigned char)*p < 0x20 || *p == 0x7f ? ' ' : *p);
    }
}

static void
node_facts_set(struct node_facts *f, const char *name, const char *value, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (strcmp(name, texts[i].name) == 0) {
            char *text = (char *)f + texts[i].at;

            (void)snprintf(text, FACT_MAX, "%.*s", (int)n, value);
            step_line_clean(text);
        }
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        if (strcmp(name, numbers[i].name) == 0)
            *(uint64_t *)((char *)f + numbers[i].at) = strtoull(value, NULL, 10);
}

int node_facts_parse(const char *text, struct node_facts *ret, struct err *err)
{
    struct node_facts f = {.state = NULL};

    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "\t"), name = strcspn(p, "=");
        char word[32];

        if (name >= n || name >= sizeof(word))
            return err_set(err, -EPROTO, "no facts of a node: \"%.100s\"", text);
        memcpy(word, p, name);
        word[name] = '\0';
        node_facts_set(&f, word, p + name + 1, n - name - 1);
        p += n + (p[n] == '\t');
    }
    if (!*f.node || !*f.agent)
        return err_set(err, -EPROTO, "no facts of a node: \"%.100s\"", text);
    *ret = f;
    return 0;
}

/* --- judgement -------------------------------------------------------------------- */

struct judgement {
    const struct node_facts *f;
    struct strbuf *out;
    unsigned n;
};

static void judge_add(struct judgement *j, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void judge_add(struct judgement *j, const char *fmt, ...)
{
    va_list ap;

    strbuf_printf(j->out, "%s: ", j->f->node);
    va_start(ap, fmt);
    strbuf_vprintf(j->out, fmt, ap);
    va_end(ap);
    strbuf_putc(j->out, '\n');
    j->n++;
}

static void judge_plugin(struct judgement *j, const struct node_facts *login)
{
    const struct node_facts *f = j->f;

    if (strcmp(f->plugstack, FACTS_OK) != 0) {
        judge_add(j, "%s", f->plugstack);
        return;
    }
    if (*login->plugin && strcmp(f->plugin, login->plugin) != 0)
        judge_add(j,
                  "spank_hvd.so is version %s, but %s where srun runs: a step between "
                  "two versions is refused",
                  f->plugin, login->plugin);
    if (*f->slurm && strncmp(f->slurm, f->plugin_slurm, strlen(f->plugin_slurm)) != 0)
        judge_add(j,
                  "spank_hvd.so is compiled for Slurm %s, and Slurm here is %s, which "
                  "does not load it",
                  f->plugin_slurm, f->slurm);
    if (*f->package && strcmp(f->package, f->plugin) != 0)
        judge_add(j, "the Python package is version %s, but spank_hvd.so is %s",
                  f->package, f->plugin);
}

static void judge_runtime(struct judgement *j, const struct node_facts *login)
{
    const struct node_facts *f = j->f;

    if (strcmp(f->agent, login->agent) != 0)
        judge_add(j, "the runtime is version %s, but %s on this host", f->agent,
                  login->agent);
    if (!*f->package && *f->python)
        judge_add(j, "no Python package: %s finds no horovod of ours", f->python);
    if (!*f->python)
        judge_add(j, "there is no python3 on PATH");
}

unsigned node_facts_judge(const struct node_facts *f,
                          const struct node_facts *login,
                          struct strbuf *out)
{
    struct judgement j = {.f = f, .out = out};
    struct err err = ERR_INIT;

    if (f->state) {
        judge_add(&j, "%s (%s)", f->state, f->slurm);
        return j.n;
    }
    judge_plugin(&j, login);
    judge_runtime(&j, login);
    if (strcmp(f->munge, FACTS_OK) != 0)
        judge_add(&j, "munge refuses this host's credential: %s", f->munge);
    if (!*f->iface)
        judge_add(&j, "no interface of %s is on the route to srun",
                  *f->ifaces ? f->ifaces : "this node");
    if (strcmp(f->run, FACTS_OK) != 0)
        judge_add(&j, "%s", f->run);
    if (memlock_check(f->rdma, f->memlock_bytes, &err))
        judge_add(&j, "%s", err.text);
    if (f->shm_bytes < SHM_MIN_BYTES)
        judge_add(&j, "/dev/shm has %llu MiB, less than %llu",
                  (unsigned long long)f->shm_bytes / MIB, SHM_MIN_BYTES / MIB);
    return j.n;
}

/* --- the table -------------------------------------------------------------------- */

static const char *fact_or_dash(const char *text)
{
    return *text ? text : "-";
}

void node_facts_row(const struct node_facts *f, struct strbuf *out)
{
    static const char row[] = "%-12s %-8s %-8s %-8s %-9s %-6s %-18s %4s %5s %9s %8s\n";
    char gpus[24], rdma[24], memlock[32] = "unlimited", shm[32],
                             ifaces[2 * FACT_MAX + 8];

    if (!f) {
        strbuf_printf(out, row, "NODE", "PLUGIN", "RUNTIME", "PYTHON", "SLURM", "MUNGE",
                      "INTERFACES", "GPUS", "RDMA", "MEMLOCK", "SHM");
        return;
    }
    if (f->state) {
        strbuf_printf(out, "%-12s %s\n", f->node, f->state);
        return;
    }
    (void)snprintf(gpus, sizeof(gpus), "%llu", (unsigned long long)f->gpus);
    (void)snprintf(rdma, sizeof(rdma), "%llu", (unsigned long long)f->rdma);
    if (f->memlock_bytes != UINT64_MAX)
        (void)snprintf(memlock, sizeof(memlock), "%lluM",
                       (unsigned long long)f->memlock_bytes / MIB);
    (void)snprintf(shm, sizeof(shm), "%lluM", (unsigned long long)f->shm_bytes / MIB);
    (void)snprintf(ifaces, sizeof(ifaces), "%s%s%s", fact_or_dash(f->iface),
                   strcmp(f->iface, f->ifaces) == 0 ? "" : " of ",
                   strcmp(f->iface, f->ifaces) == 0 ? "" : f->ifaces);
    strbuf_printf(out, row, f->node, fact_or_dash(f->plugin), fact_or_dash(f->agent),
                  fact_or_dash(f->package), fact_or_dash(f->slurm),
                  strcmp(f->munge, FACTS_OK) == 0 ? FACTS_OK : "no", ifaces, gpus, rdma,
                  memlock, shm);
}

/* --- the plugin ------------------------------------------------------------------- */

bool spank_version_find(const void *p, size_t n, char *ret_version, char *ret_slurm)
{
    const char *mark = memmem(p, n, SPANK_VERSION_MARK, strlen(SPANK_VERSION_MARK));
    char text[64], version[32];
    unsigned slurm;
    size_t left;

    if (!mark)
        return false;
    mark += strlen(SPANK_VERSION_MARK);
    left = n - (size_t)(mark - (const char *)p);
    if (left >= sizeof(text))
        left = sizeof(text) - 1;
    memcpy(text, mark, left);
    text[left] = '\0';
    if (sscanf(text, "%31s 0x%x", version, &slurm) != 2)
        return false;
    (void)snprintf(ret_version, FACT_MAX, "%s", version);
    (void)snprintf(ret_slurm, FACT_MAX, "%02u.%02u", slurm >> 16 & 0xff,
                   slurm >> 8 & 0xff);
    return true;
}

static void plugstack_set(char ret[256], const char *value, size_t n)
{
    (void)snprintf(ret, 256, "%.*s", (int)n, value);
}

void plugstack_line_parse(const char *line, struct plugstack_line *ret)
{
    static const char space[] = " \t\r\n";
    size_t index = 0;

    *ret = (struct plugstack_line){.is_ours = false};
    for (const char *p = line + strspn(line, space); *p && *p != '#';
         p += strspn(p, space)) {
        size_t n = strcspn(p, space);

        if (index == 0)
            ret->is_include = n == 7 && strncmp(p, "include", n) == 0;
        else if (index == 1)
            plugstack_set(ret->path, p, n);
        else if (strncmp(p, "dir=", 4) == 0)
            plugstack_set(ret->dir, p + 4, n - 4);
        else if (strncmp(p, "run_dir=", 8) == 0)
            plugstack_set(ret->run_dir, p + 8, n - 8);
        p += n;
        index++;
    }
    const char *slash = strrchr(ret->path, '/');
    ret->is_ours =
        !ret->is_include && strcmp(slash ? slash + 1 : ret->path, "spank_hvd.so") == 0;
}
