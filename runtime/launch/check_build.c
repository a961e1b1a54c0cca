/* SPDX-License-Identifier: Apache-2.0 */
/* A framework is available when the Python that ranks would be started with finds it
 * and this runtime; it is looked up, not imported, since importing TensorFlow takes
 * seconds. What Horovod calls controllers and operations are the libraries behind it,
 * none of which is inside: the boxes say the same as hvd.mpi_built() and the like. The
 * bytes of Horovod's part are Horovod's, with the blanks at its end. Called by
 * horovodrun.c. */
#include "runtime/launch/check_build.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/launch/command.h"
#include "runtime/launch/environment.h"

#define ANSWER_MAX_BYTES 16384

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
    "for name, dists in (('tensorflow', ('tensorflow', 'tensorflow-cpu')),\n"
    "                    ('torch', ('torch',)), ('keras', ('keras',))):\n"
    "    if find(name):\n"
    "        print(name, version(*dists))\n";

struct answer {
    char python[PATH_MAX + 32], runtime[PATH_MAX];
    char tensorflow[64], torch[64], keras[64]; /* versions */
    bool has_tensorflow, has_torch, has_keras;
    char problem[256]; /* why there is no answer, "": there is */
};

static bool take_word(const char *line, const char *name, char *ret, size_t size)
{
    size_t n = strlen(name);
    if (strncmp(line, name, n) != 0 || line[n] != ' ')
        return false;
    (void)snprintf(ret, size, "%.*s", (int)strcspn(line + n + 1, "\n"), line + n + 1);
    return true;
}

static void take_lines(const char *text, struct answer *a)
{
    const struct {
        const char *name;
        char *at;
        size_t size;
        bool *is_there;
    } table[] = {
        {"python", a->python, sizeof(a->python), NULL},
        {"runtime", a->runtime, sizeof(a->runtime), NULL},
        {"tensorflow", a->tensorflow, sizeof(a->tensorflow), &a->has_tensorflow},
        {"torch", a->torch, sizeof(a->torch), &a->has_torch},
        {"keras", a->keras, sizeof(a->keras), &a->has_keras},
    };
    for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n')
        for (size_t i = 0; i < ARRAY_LEN(table); i++)
            if (take_word(p, table[i].name, table[i].at, table[i].size)
                && table[i].is_there)
                *table[i].is_there = true;
}

static int ask(struct capture *c, char *const *env, const char *path, struct answer *a)
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
        take_lines(strbuf_str(&out), a);
    else
        (void)snprintf(a->problem, sizeof(a->problem), "%.255s", err.text);
    c->argv = NULL;
    strbuf_release(&out);
    return c->signal ? rc : 0;
}

static int
ask_python(struct capture *c, const char *dir, struct answer *a, struct err *err)
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
    int rc = ask(c, env.v, path, a);
    return rc < 0 ? err_set(err, rc, "stopped by a signal") : 0;
}

static char box(bool is_there)
{
    return is_there ? 'X' : ' ';
}

static void render_ours(const struct answer *a, struct strbuf *out)
{
    strbuf_puts(out, "\nRingmaster v" HVD_VERSION_STRING ":\n"
                     "    [X] CPU tensors: shared memory within a host, TCP between "
                     "hosts\n"
                     "    [ ] GPU tensors: NCCL\n");
    strbuf_printf(out, "    python: %s\n", *a->problem ? a->problem : a->python);
    strbuf_printf(out, "    runtime: %s\n",
                  *a->runtime ? a->runtime : "not found by that python");
    if (a->has_tensorflow)
        strbuf_printf(
            out,
            "    tensorflow: %s\n"
            "    tensorflow's stream ordering: by host memory; TensorFlow copies "
            "to and from GPUs, no stream is shared\n",
            a->tensorflow);
    if (a->has_torch)
        strbuf_printf(out, "    torch: %s\n", a->torch);
    if (a->has_keras)
        strbuf_printf(out, "    keras: %s\n", a->keras);
}

int check_build_render(struct capture *c,
                       const char *dir,
                       struct strbuf *out,
                       struct err *err)
{
    AUTOFREE struct answer *a = mem_zalloc(sizeof(*a));
    if (!a)
        return err_set(err, -ENOMEM, "out of memory");
    int rc = ask_python(c, dir, a, err);
    if (rc < 0)
        return rc;
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
                  "    [ ] NCCL\n"
                  "    [ ] DDL\n"
                  "    [ ] CCL\n"
                  "    [ ] MPI\n"
                  "    [ ] Gloo    \n",
                  box(a->has_tensorflow && has_runtime),
                  box(a->has_torch && has_runtime));
    render_ours(a, out);
    return 0;
}
