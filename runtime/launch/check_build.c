/* SPDX-License-Identifier: Apache-2.0 */
/* A framework is available if the Python that would start the ranks can import it and
 * this runtime. Python looks it up without importing it, since importing TensorFlow
 * takes seconds. Horovod's controllers and operations are libraries that this runtime
 * does not have: the boxes match hvd.mpi_built() and similar functions. The box of NCCL
 * is checked if hvd-gpu reports that GPU tensors can be reduced on this host. Horovod's
 * part of the output is byte for byte Horovod's, including trailing blanks. Called by
 * horovodrun.c. */
#include "runtime/launch/check_build.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/mem.h"
#include "runtime/launch/command.h"
#include "runtime/launch/environment.h"
#include "runtime/launch/gpu_info.h"

#define ANSWER_MAX_BYTES 16384
#define OLDEST_SM        70 /* as in backend/nccl/report.h */

static const char script[] =
    "import sys\n"
    "import importlib.util as u\n"
    "def find(name):\n"
    "    try:\n"
    "        return u.find_spec(name)\n"
    "    except Exception:\n"
    "        return None\n"
    "def version(*names):\n"
    "    for name in names:\n"
    "        try:\n"
    "            import importlib.metadata as m\n"
    "            return m.version(name)\n"
    "        except Exception:\n"
    "            pass\n"
    "    return 'version not known'\n"
    "print('python', sys.executable, sys.version.split()[0])\n"
    "s = find('_hvd')\n"
    "if s and s.origin:\n"
    "    print('runtime', s.origin.rpartition('/')[0])\n"
    "s = find('nvidia.nccl')\n"
    "for p in s.submodule_search_locations or () if s else ():\n"
    "    print('nccl', p + '/lib/libnccl.so.2')\n"
    "for name, dists in (('tensorflow', ('tensorflow', 'tensorflow-cpu')),\n"
    "                    ('torch', ('torch',)), ('keras', ('keras',))):\n"
    "    if find(name):\n"
    "        print(name, version(*dists))\n";

struct python_answer {
    char python[PATH_MAX + 32], runtime[PATH_MAX], nccl[PATH_MAX];
    char tensorflow[64], torch[64], keras[64];
    bool has_tensorflow, has_torch, has_keras;
    char problem[256]; /* why Python could not be queried; "": it was */
};

static bool check_take_word(const char *line, const char *name, char *ret, size_t size)
{
    size_t n = strlen(name);
    if (strncmp(line, name, n) != 0 || line[n] != ' ')
        return false;
    (void)snprintf(ret, size, "%.*s", (int)strcspn(line + n + 1, "\n"), line + n + 1);
    return true;
}

static void check_take_lines(const char *text, struct python_answer *a)
{
    const struct {
        const char *name;
        char *at;
        size_t size;
        bool *is_there;
    } table[] = {
        {"python", a->python, sizeof(a->python), NULL},
        {"runtime", a->runtime, sizeof(a->runtime), NULL},
        {"nccl", a->nccl, sizeof(a->nccl), NULL},
        {"tensorflow", a->tensorflow, sizeof(a->tensorflow), &a->has_tensorflow},
        {"torch", a->torch, sizeof(a->torch), &a->has_torch},
        {"keras", a->keras, sizeof(a->keras), &a->has_keras},
    };
    for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n')
        for (size_t i = 0; i < ARRAY_LEN(table); i++)
            if (check_take_word(p, table[i].name, table[i].at, table[i].size)
                && table[i].is_there)
                *table[i].is_there = true;
}

static int python_run_script(struct capture *c,
                             char *const *env,
                             const char *path,
                             struct python_answer *a)
{
    struct err err = ERR_INIT;
    struct strbuf out;
    char name[PATH_MAX], flag[] = "-c", text[sizeof(script)];
    char *argv[] = {name, flag, text, NULL};
    memcpy(text, script, sizeof(script));
    (void)snprintf(name, sizeof(name), "%s", path);
    strbuf_init(&out, ANSWER_MAX_BYTES);
    c->path = c->name = path;
    c->argv = argv;
    c->env = env;
    int rc = capture_run(c, &out, &err);
    if (rc == 0)
        check_take_lines(strbuf_str(&out), a);
    else
        (void)snprintf(a->problem, sizeof(a->problem), "%.255s", err.text);
    c->argv = NULL;
    strbuf_release(&out);
    return c->signal ? rc : 0;
}

static int python_query(struct capture *c,
                        const char *dir,
                        struct python_answer *a,
                        struct err *err)
{
    char path[PATH_MAX];
    CLEANUP(environment_release) struct environment env;
    environment_init(&env);
    environment_inherit(&env, c->env);
    environment_runtime(&env, dir);
    if (env.status < 0)
        return err_set(err, env.status, "out of memory for an environment");
    const char *search = environment_get(&env, "PATH");
    if (command_find("python", search, path, NULL) != 0
        && command_find("python3", search, path, NULL) != 0) {
        (void)snprintf(a->problem, sizeof(a->problem),
                       "neither python nor python3 is in PATH");
        return 0;
    }
    int rc = python_run_script(c, env.v, path, a);
    return rc < 0 ? err_set(err, rc, "stopped by a signal") : 0;
}

static char check_box(bool is_there)
{
    return is_there ? 'X' : ' ';
}

/* Prints what exists even if another part is missing. */
static void check_render_gpus(const struct gpu_report *r, struct strbuf *out)
{
    if (*r->problem)
        strbuf_printf(out, "    [ ] GPU tensors: %s\n", r->problem);
    else
        strbuf_printf(out, "    [X] GPU tensors: NCCL %s (%s)\n", r->nccl,
                      r->nccl_path);
    if (*r->problem && *r->nccl && r->n_gpus)
        strbuf_printf(out, "    NCCL: %s (%s)\n", r->nccl, r->nccl_path);
    if (*r->driver || *r->cuda)
        strbuf_printf(out, "    NVIDIA driver: %s, for CUDA %s\n",
                      *r->driver ? r->driver : "version not known",
                      *r->cuda ? r->cuda : "of unknown version");
    for (size_t i = 0; i < r->n_gpus; i++) {
        const struct gpu_report_gpu *g = &r->gpus[i];
        strbuf_printf(out, "    GPU %u: %s, %llu MiB, sm_%u, %s%s%s\n", g->index,
                      g->name, (unsigned long long)g->memory_mib, g->sm, g->uuid,
                      g->is_mig ? ", a MIG instance" : "",
                      g->sm < OLDEST_SM ? ", too old: sm_70 or later is required" : "");
    }
    if (r->n_gpus)
        strbuf_printf(out, "    GPU kernels: %s\n", *r->kernels ? r->kernels : "none");
    if (*r->nvlinks)
        strbuf_printf(out, "    NVLink: %s\n", r->nvlinks);
    if (r->n_gpus && *r->ib)
        strbuf_printf(out, "    InfiniBand: %s\n", r->ib);
}

static bool env_has_entry(char *const *env, const char *entry)
{
    for (; env && *env; env++)
        if (strcasecmp(*env, entry) == 0) /* values are case-insensitive */
            return true;
    return false;
}

/* cuCtxRecordEvent exists since CUDA 12.5. */
static const char *check_stream_ordering(const struct gpu_report *r, char *const *env)
{
    unsigned major = 0, minor = 0;

    if (*r->problem)
        return "through host memory; TensorFlow copies to and from GPUs, no stream is "
               "shared";
    if (!env_has_entry(env, "HVD_GPU_READY=sync")
        && sscanf(r->cuda, "%5u.%5u", &major, &minor) == 2
        && major * 100 + minor >= 1205)
        return "by an event of the whole context";
    return "by synchronising its device before each operation";
}

/* A wheel runs no code when it is installed, so this is where a user of these sees what
 * came of them. */
static void check_render_build_variables(char *const *env, struct strbuf *out)
{
    static const char *const prefixes[] = {"HOROVOD_WITH_", "HOROVOD_WITHOUT_",
                                           "HOROVOD_GPU"};
    for (; env && *env; env++)
        for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
            if (strncmp(*env, prefixes[i], strlen(prefixes[i])) == 0)
                strbuf_printf(out,
                              "    %.128s: without effect, the wheel is complete and "
                              "nothing is compiled\n",
                              *env);
}

static void check_render_ours(const struct python_answer *a,
                              const struct gpu_report *gpus,
                              char *const *env,
                              struct strbuf *out)
{
    strbuf_puts(out, "\nRingmaster v" HVD_VERSION_STRING ":\n"
                     "    [X] CPU tensors: shared memory within a host, TCP between "
                     "hosts\n");
    check_render_gpus(gpus, out);
    strbuf_printf(out, "    python: %s\n", *a->problem ? a->problem : a->python);
    strbuf_printf(out, "    runtime: %s\n",
                  *a->runtime ? a->runtime : "not found by that python");
    if (a->has_tensorflow)
        strbuf_printf(out,
                      "    tensorflow: %s\n"
                      "    tensorflow's stream ordering: %s\n",
                      a->tensorflow, check_stream_ordering(gpus, env));
    if (a->has_torch)
        strbuf_printf(out, "    torch: %s\n", a->torch);
    if (a->has_keras)
        strbuf_printf(out, "    keras: %s\n", a->keras);
    check_render_build_variables(env, out);
}

int check_build_render(struct capture *c,
                       const char *dir,
                       struct strbuf *out,
                       struct err *err)
{
    AUTOFREE struct python_answer *a = mem_zalloc(sizeof(*a));
    AUTOFREE struct gpu_report *gpus = mem_zalloc(sizeof(*gpus));
    if (!a || !gpus)
        return err_set(err, -ENOMEM, "out of memory");
    char *const *env = c->env;
    int rc = python_query(c, dir, a, err);
    if (rc < 0)
        return rc;
    c->env = env;
    (void)gpu_info_read(c, a->runtime, a->nccl, gpus); /* a failure is in the report */
    if (c->signal)
        return err_set(err, -EINTR, "stopped by a signal");
    bool has_runtime = *a->runtime != '\0';
    strbuf_printf(out,
                  "Horovod v" CHECK_BUILD_VERSION ":\n"
                  "\n"
                  "Available Frameworks:\n"
                  "    [%c] TensorFlow\n"
                  "    [%c] PyTorch\n"
                  "    [ ] MXNet\n"
                  "\n"
                  "Available Controllers:\n"
                  "    [ ] MPI\n"
                  "    [ ] Gloo\n"
                  "\n"
                  "Available Tensor Operations:\n"
                  "    [%c] NCCL\n"
                  "    [ ] DDL\n"
                  "    [ ] CCL\n"
                  "    [ ] MPI\n"
                  "    [ ] Gloo    \n",
                  check_box(a->has_tensorflow && has_runtime),
                  check_box(a->has_torch && has_runtime), check_box(!*gpus->problem));
    check_render_ours(a, gpus, env, out);
    return 0;
}
