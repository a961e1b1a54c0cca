/* SPDX-License-Identifier: Apache-2.0 */
/* Called by the first task of each node, before it reports to the gate. A check refuses
 * only what cannot work: where a value is missing or has an unknown form it passes, and
 * the runtime reports what goes wrong. */
#include "spank_plugin/preflight.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/parse.h"

#define MAX_PER_TASK 1024u

/* --- versions --------------------------------------------------------------------- */

int preflight_check_version(const char *dir,
                            const char *text,
                            const char *own,
                            struct err *err)
{
    const char *at = strstr(text, "RINGMASTER_VERSION");
    char version[32];

    if (!at || sscanf(at, "RINGMASTER_VERSION = %*['\"]%31[^'\"\n]", version) != 1)
        return err_set(err, -EINVAL,
                       "plugstack.conf: dir=%s: python/_hvd/_version.py has no version",
                       dir);
    if (strcmp(version, own) == 0)
        return 0;
    return err_set(
        err, -EINVAL,
        "plugstack.conf: dir=%s: the runtime is version %s, but spank_hvd.so "
        "is %s: install the same version of both",
        dir, version, own);
}

/* --- GPUs ------------------------------------------------------------------------- */

/* The number after the word in "gpu:verbose,per_task:2", or 0. */
static uint32_t bind_number(const char *bind, const char *word)
{
    const char *at = strstr(bind, word);
    char digits[12];
    uint32_t n = 0;

    if (!at || sscanf(at + strlen(word), "%11[0-9]", digits) != 1
        || parse_u32("gpu-bind", digits, 1, MAX_PER_TASK, &n, NULL))
        return 0;
    return n;
}

int preflight_check_gpus(const char *bind,
                         const char *on_node,
                         uint32_t n_tasks,
                         struct err *err)
{
    const char *gpu = bind ? strstr(bind, "gpu:") : NULL;
    uint32_t n_gpus, per_task, per_gpu;
    uint64_t needed;

    if (!gpu || !on_node
        || parse_u32("SLURM_GPUS_ON_NODE", on_node, 0, UINT32_MAX, &n_gpus, NULL))
        return 0;
    per_task = bind_number(gpu, "per_task:");
    per_gpu = bind_number(gpu, "single:");
    if (per_task)
        needed = (uint64_t)per_task * n_tasks;
    else if (per_gpu)
        needed = (n_tasks + per_gpu - 1) / per_gpu;
    else
        return 0;
    if (needed <= n_gpus)
        return 0;
    return err_set(err, -EINVAL,
                   "%u tasks need %llu GPUs (--gpu-bind=%s:%u, which --gpus-per-task "
                   "and --ntasks-per-gpu set, too), but the step has %u on this node: "
                   "start fewer tasks or request more with --gpus-per-node",
                   n_tasks, (unsigned long long)needed,
                   per_task ? "per_task" : "single", per_task ? per_task : per_gpu,
                   n_gpus);
}

/* --- the program ------------------------------------------------------------------ */

/* "python", "python3.11"; other programs may be scripts of Python, which run in a Python
 * of their own. */
static bool is_python(const char *program)
{
    const char *slash = strrchr(program, '/');
    const char *name = slash ? slash + 1 : program;

    if (strncmp(name, "python", 6) != 0)
        return false;
    name += 6;
    return name[strspn(name, "0123456789.")] == '\0';
}

bool python_program_find(char *const *argv, int argc, struct python_program *ret)
{
    *ret = (struct python_program){.text = NULL};
    if (argc < 2 || !is_python(argv[0]))
        return false;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];

        if (word[0] != '-') {
            ret->path = word;
            return true;
        }
        if (strcmp(word, "-c") == 0 && i + 1 < argc) {
            ret->text = argv[i + 1];
            return true;
        }
        /* -u, -B, -O and the like change nothing here; -m, -I and the like do */
        if (word[1 + strspn(word + 1, "uBObqvd")] != '\0' || !word[1])
            return false;
    }
    return false;
}

static bool is_ours(const char *module)
{
    static const char *const names[] = {"horovod", "perseus"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        size_t n = strlen(names[i]);

        if (strncmp(module, names[i], n) == 0 && !isalnum((unsigned char)module[n])
            && module[n] != '_')
            return true;
    }
    return false;
}

/* At the start of a line: an indented one may be inside a try, or never run. */
bool python_program_imports_us(const char *text)
{
    for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p != '\0') {
        size_t n = strncmp(p, "import ", 7) == 0 ? 7
                   : strncmp(p, "from ", 5) == 0 ? 5
                                                 : 0;

        if (n && is_ours(p + n + strspn(p + n, " \t")))
            return true;
    }
    return false;
}
