/* SPDX-License-Identifier: Apache-2.0 */
/* API object -> struct mpi_job.
 *
 * The rules are those of mpi-operator's CRD, defaults and validation: both accept and
 * refuse the same YAML. Only the messages differ: field, value, what is allowed.
 * Unknown fields are ignored, because the CRD prunes them. All problems are collected
 * and joined as in an Event of mpi-operator.
 *
 * Pod templates are validated by the API server. Here only the types of the fields that
 * the operator adds to are checked, so that nothing is overwritten. Pure; called by the
 * reconcile shell and the fuzz target. */
#include "operator/core/mpi/mpi_job.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "operator/core/state.h"
#include "operator/doc/object.h"
#include "runtime/base/mem.h"

#define PATH_SIZE     128
#define OUR_NAME      "ringmaster.dev/hvd-operator"
#define UPSTREAM_NAME "kubeflow.org/mpi-operator"

/* An object of the document, and its path for error messages. */
struct mpi_scope {
    const struct node *o;
    char path[PATH_SIZE];
    struct strbuf *problems;
};

void mpi_worker_name(const struct mpi_job *job, uint32_t i, char ret[MPI_NAME_SIZE])
{
    (void)snprintf(ret, MPI_NAME_SIZE, "%.63s-worker-%u", job->meta.name, i);
}

void mpi_object_name(const struct mpi_job *job,
                     const char *what,
                     char ret[MPI_NAME_SIZE])
{
    (void)snprintf(ret, MPI_NAME_SIZE, "%.63s-%.16s", job->meta.name, what);
}

const char *mpi_cut(struct arena *a, const char *s)
{
    size_t n = MPI_MESSAGE_MAX - 3;

    if (strlen(s) <= MPI_MESSAGE_MAX)
        return arena_strdup(a, s);
    while (n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80) /* not within a character */
        n--;
    return arena_printf(a, "%.*s...", (int)n, s);
}

/* --- reading fields -------------------------------------------------------------- */

static void problem_type(const struct mpi_scope *p,
                         const char *key,
                         enum node_type is,
                         const char *want)
{
    strbuf_printf(p->problems, "%s.%s: must be %s, is %s\n", p->path, key, want,
                  node_type_name(is));
}

/* o[key] of that type, NULL if absent; of another type: a problem, and NULL. */
static const struct node *
read_typed(const struct mpi_scope *p, const char *key, enum node_type type)
{
    const struct node *n = node_get(p->o, key);

    if (!n || n->type == type)
        return n;
    problem_type(p, key, n->type,
                 type == NODE_INT ? "an integer" : node_type_name(type));
    return NULL;
}

static int64_t read_int(
    const struct mpi_scope *p, const char *key, int64_t min, int64_t max, int64_t dflt)
{
    const struct node *n = read_typed(p, key, NODE_INT);

    if (!n)
        return dflt;
    if (n->u.i >= min && n->u.i <= max)
        return n->u.i;
    strbuf_printf(p->problems, "%s.%s: %" PRId64 " is %s %" PRId64 "\n", p->path, key,
                  n->u.i, n->u.i < min ? "below" : "above", n->u.i < min ? min : max);
    return dflt;
}

static bool read_bool(const struct mpi_scope *p, const char *key)
{
    const struct node *n = read_typed(p, key, NODE_BOOL);

    return n && n->u.b;
}

static const char *
read_str(const struct mpi_scope *p, const char *key, const char *dflt)
{
    const struct node *n = read_typed(p, key, NODE_STRING);

    return n ? n->u.s : dflt;
}

/* Index of the value among words (a NULL ends them); 0 and a problem for another. */
static size_t read_word(const struct mpi_scope *p,
                        const char *key,
                        const char *dflt,
                        const char *const *words)
{
    const char *s = read_str(p, key, dflt);

    for (size_t i = 0; words[i]; i++) {
        if (strcmp(words[i], s) == 0)
            return i;
    }
    strbuf_printf(p->problems, "%s.%s: \"%s\" is not one of ", p->path, key, s);
    for (size_t i = 0; words[i]; i++)
        strbuf_printf(p->problems, "%s%s", i > 0 ? ", " : "", words[i]);
    strbuf_putc(p->problems, '\n');
    return 0;
}

/* The object at o[key]; .o is NULL if it is absent or no object. */
static struct mpi_scope
scope_open_object(const struct mpi_scope *p, const char *key, bool is_required)
{
    struct mpi_scope s = {.problems = p->problems};

    (void)snprintf(s.path, sizeof(s.path), "%.90s.%.30s", p->path, key);
    s.o = read_typed(p, key, NODE_OBJECT);
    if (is_required && !node_get(p->o, key))
        strbuf_printf(s.problems, "%s: missing\n", s.path);
    return s;
}

/* --- the parts of a spec --------------------------------------------------------- */

/* The fields of the pod and its first container that are added to must have the right
 * type. */
static void mpi_check_pod(const struct mpi_scope *tmpl)
{
    static const char *const lists[] = {"command", "args", "env", "ports",
                                        "volumeMounts"};
    struct mpi_scope meta = scope_open_object(tmpl, "metadata", false);
    struct mpi_scope spec = scope_open_object(tmpl, "spec", true), first, dns;
    const struct node *containers;

    (void)scope_open_object(&meta, "labels", false);
    (void)scope_open_object(&meta, "annotations", false);
    if (!spec.o)
        return;
    (void)read_typed(&spec, "volumes", NODE_ARRAY);
    (void)read_typed(&spec, "initContainers", NODE_ARRAY);
    dns = scope_open_object(&spec, "dnsConfig", false);
    (void)read_typed(&dns, "searches", NODE_ARRAY);
    containers = read_typed(&spec, "containers", NODE_ARRAY);
    first = spec;
    first.o = node_item(containers, 0);
    if (!first.o || first.o->type != NODE_OBJECT) {
        if (containers || !node_get(spec.o, "containers"))
            strbuf_printf(spec.problems,
                          "%s.containers: must hold at least one container\n",
                          spec.path);
        return;
    }
    (void)snprintf(first.path, sizeof(first.path), "%.100s.containers[0]", spec.path);
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        (void)read_typed(&first, lists[i], NODE_ARRAY);
}

static struct mpi_replicas read_replicas(const struct mpi_scope *sets,
                                         const char *role,
                                         bool is_at_rest,
                                         const char *dflt_policy)
{
    static const char *const policies[] = {"Never", "OnFailure", NULL};
    bool is_launcher = strcmp(role, "Launcher") == 0;
    struct mpi_scope p = scope_open_object(sets, role, is_launcher), tmpl;
    struct mpi_replicas r = {.is_set = p.o != NULL};
    const char *policy;

    if (!p.o)
        return r;
    r.n = (uint32_t)read_int(&p, "replicas", 1, is_launcher ? 1 : MPI_MAX_WORKERS, 1);
    if (!is_launcher && !node_get(p.o, "replicas"))
        strbuf_printf(p.problems, "%s.replicas: missing: the number of workers\n",
                      p.path);
    policy = read_str(&p, "restartPolicy", "");
    if (!*policy)
        policy = dflt_policy;
    else
        policy = policies[read_word(&p, "restartPolicy", dflt_policy, policies)];
    r.restart_policy = policy;
    tmpl = scope_open_object(&p, "template", !is_at_rest);
    r.pod_template = tmpl.o;
    if (tmpl.o)
        mpi_check_pod(&tmpl);
    return r;
}

static void read_policy(struct mpi_job *job, const struct mpi_scope *spec)
{
    static const char *const cleans[] = {
        [MPI_CLEAN_NONE] = "None",
        [MPI_CLEAN_RUNNING] = "Running",
        [MPI_CLEAN_ALL] = "All",
        NULL,
    };
    struct mpi_scope run = scope_open_object(spec, "runPolicy", false);
    struct mpi_scope gang = scope_open_object(&run, "schedulingPolicy", false);

    job->clean = (enum mpi_clean)read_word(&run, "cleanPodPolicy", "None", cleans);
    job->ttl_s = read_int(&run, "ttlSecondsAfterFinished", 0, INT32_MAX, -1);
    job->deadline_s = read_int(&run, "activeDeadlineSeconds", 0, INT64_MAX, -1);
    job->backoff_limit = read_int(&run, "backoffLimit", 0, INT32_MAX, -1);
    job->is_suspended = read_bool(&run, "suspend");
    job->managed_by = read_str(&run, "managedBy", NULL);
    job->min_available = read_int(&gang, "minAvailable", 0, INT32_MAX, -1);
    job->schedule_timeout_s =
        read_int(&gang, "scheduleTimeoutSeconds", 0, INT32_MAX, -1);
    job->queue = read_str(&gang, "queue", "");
    job->priority_class = read_str(&gang, "priorityClass", "");
    job->min_resources = read_typed(&gang, "minResources", NODE_OBJECT);
}

static void read_spec(struct mpi_job *job, const struct mpi_scope *spec)
{
    static const char *const names[] = {
        [MPI_OPENMPI] = "OpenMPI", [MPI_INTEL] = "Intel", [MPI_MPICH] = "MPICH", NULL};
    struct mpi_scope sets = scope_open_object(spec, "mpiReplicaSpecs", true);
    const char *s;

    job->slots = (uint32_t)read_int(spec, "slotsPerWorker", 0, INT32_MAX, 1);
    job->launcher_is_worker = read_bool(spec, "runLauncherAsWorker");
    job->ssh_path = read_str(spec, "sshAuthMountPath", "");
    if (!*job->ssh_path)
        job->ssh_path = MPI_ROOT_SSH_PATH;
    s = read_str(spec, "mpiImplementation", "");
    if (*s)
        job->implementation =
            (enum mpi_implementation)read_word(spec, "mpiImplementation", "", names);
    /* mpi-operator takes any other word for WaitForWorkersReady, and so do we */
    s = read_str(spec, "launcherCreationPolicy", "");
    job->waits_for_workers = *s && strcmp(s, "AtStartup") != 0;
    read_policy(job, spec);
    if (sets.o) {
        job->launcher =
            read_replicas(&sets, "Launcher", job->meta.is_at_rest, "OnFailure");
        job->worker = read_replicas(&sets, "Worker", job->meta.is_at_rest, "Never");
    }
}

/* --- annotations and name -------------------------------------------------------- */

static bool read_extra(const struct job_meta *meta,
                       const char *key,
                       const char *allowed,
                       struct strbuf *problems)
{
    const struct node *n = node_get(meta->annotations, key);

    if (!n)
        return false;
    if (n->type == NODE_STRING && strcmp(n->u.s, allowed) == 0)
        return true;
    strbuf_printf(problems, "metadata.annotations[%s]: \"%s\" is not %s\n", key,
                  n->type == NODE_STRING ? n->u.s : node_type_name(n->type), allowed);
    return false;
}

/* Pods, launcher and Secret of a job are all for ssh or all for agents. The choice at
 * the start is kept, as the reason of condition Created. */
static void read_launch(struct mpi_job *job, struct strbuf *problems)
{
    const struct node *created = condition_find(job->meta.status, "Created");
    const struct node *n = node_get(job->meta.annotations, MPI_EXTRA_LAUNCH);
    const char *reason = node_str(created, "reason");

    if (!created) {
        job->is_agent = read_extra(&job->meta, MPI_EXTRA_LAUNCH, "agent", problems);
        return;
    }
    job->is_agent = reason && strcmp(reason, MPI_REASON_AGENT) == 0;
    job->is_launch_changed =
        job->is_agent ? !n || n->type != NODE_STRING || strcmp(n->u.s, "agent") != 0
                      : n != NULL;
}

static void mpi_check_name(const struct mpi_job *job, struct strbuf *problems)
{
    const char *name = job->meta.name;
    uint32_t last = job->worker.n > 0 ? job->worker.n - 1 : 0;
    char text[512];
    int n = snprintf(text, sizeof(text), "%s-worker-%u", name, last);

    if (n > 63)
        strbuf_printf(problems,
                      "metadata.name: \"%s\" is too long: the last worker would be "
                      "named %s-worker-%u, %d characters, where Kubernetes allows 63\n",
                      name, name, last, n);
    else if (name[0] < 'a' || name[0] > 'z'
             || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(name))
        strbuf_printf(problems,
                      "metadata.name: \"%s\" must be lower-case letters, digits and "
                      "'-', starting with a letter\n",
                      name);
}

/* "Found validation errors: a" or "Found validation errors: [a, b]". */
static const char *problems_join(struct arena *a, const struct strbuf *problems)
{
    const char *s = strbuf_str(problems);
    bool is_list = strchr(s, '\n') && strchr(s, '\n')[1];
    struct strbuf out;
    const char *cut;

    strbuf_init(&out, 2 * problems->n + 64);
    strbuf_printf(&out, "Found validation errors: %s", is_list ? "[" : "");
    for (; *s; s++) {
        if (*s != '\n')
            strbuf_putc(&out, *s);
        else if (s[1])
            strbuf_puts(&out, ", ");
    }
    strbuf_puts(&out, is_list ? "]" : "");
    cut = strbuf_status(&out) == 0 ? mpi_cut(a, strbuf_str(&out)) : NULL;
    strbuf_release(&out);
    return cut;
}

struct job_meta *mpi_job_open(const struct node *object,
                              const struct job_meta *meta,
                              struct arena *a,
                              struct strbuf *problems)
{
    struct mpi_scope root = {.o = object, .problems = problems}, spec;
    const char *flaw = node_str(object, OBJECT_UNREADABLE);
    struct mpi_job *job = arena_alloc(a, sizeof(*job));

    if (!job)
        return NULL;
    *job = (struct mpi_job){.meta = *meta,
                            .slots = 1,
                            .ssh_path = MPI_ROOT_SSH_PATH,
                            .ttl_s = -1,
                            .deadline_s = -1,
                            .backoff_limit = -1,
                            .min_available = -1,
                            .schedule_timeout_s = -1,
                            .queue = "",
                            .priority_class = ""};
    spec = root;
    spec.o = node_get(object, "spec");
    (void)snprintf(spec.path, sizeof(spec.path), "spec");
    if (flaw)
        strbuf_printf(problems, "spec: %s\n", flaw);
    else if (!spec.o || spec.o->type != NODE_OBJECT)
        strbuf_puts(problems, "spec: missing\n");
    else
        read_spec(job, &spec);
    read_launch(job, problems);
    job->ttl_is_of_job = read_extra(meta, MPI_EXTRA_TTL, "job", problems);
    job->must_clean_launcher =
        read_extra(meta, MPI_EXTRA_CLEANUP, "launcher", problems);
    mpi_check_name(job, problems);
    if (strbuf_status(problems) == -ENOMEM)
        return NULL;
    if (problems->n > 0 && !(job->flaws = problems_join(a, problems)))
        return NULL;
    return &job->meta;
}

bool mpi_job_is_ours(const struct job_meta *meta)
{
    const struct mpi_job *job = (const struct mpi_job *)meta;
    const char *by = job->managed_by;

    return !by || !*by || strcmp(by, UPSTREAM_NAME) == 0 || strcmp(by, OUR_NAME) == 0;
}
