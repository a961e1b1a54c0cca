/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of other operators -> HorovodJob.
 *
 * The source is copied, and every field with a counterpart is taken out of the copy. What
 * is left in it has none, and becomes a note. So no field is lost silently, whatever the
 * version of the source has.
 *
 *   MPIJob v2beta1, v1, v1alpha2   Launcher and Worker; the launcher's mpirun or horovodrun
 *                                  starts the ranks through agents instead of ssh
 *   MPIJob v1alpha1 (arena)        the same, from its one template and number of GPUs
 *   TrainingJob (arena)            the same, from etReplicaSpecs
 *   PyTorchJob                     Worker only: the master is its first
 *   TFJob                          framework tensorflow, roles of the same names */
#include "operator/cli/core/job_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/core/hvd/hvd_job.h"
#include "runtime/base/mem.h"

#define OLD_GPUS_PER_NODE 16 /* v1alpha1's default of gpusPerNode */

struct conversion {
    struct build *b;
    const struct node *source;
    struct node *rest; /* the source's spec without what was taken */
    struct node *spec; /* of the result */
    struct strbuf *notes;
};

typedef void (*convert_fn)(struct conversion *c);

static const char reason_none[] = "has no counterpart in a HorovodJob";

/* The reason why a field is dropped, if it is more than the default. */
static const struct {
    const char *path, *text;
} reasons[] = {
    {"spec.sshAuthMountPath", "is not needed: the agents replace sshd"},
    {"spec.mpiImplementation",
     "is not needed: the launcher's variables serve Open MPI, "
     "MPICH and Intel MPI"},
    {"spec.mpiDistribution", "is not needed: the launcher's variables serve Open MPI, "
                             "MPICH and Intel MPI"},
    {"spec.mainContainer", "is not needed: the first container takes part in the job"},
    {"spec.launcherCreationPolicy",
     "is not needed: the launcher's command always waits "
     "for the workers"},
    {"spec.launcherOnMaster", "has no counterpart; write a nodeSelector into the "
                              "launcher's template"},
    {"spec.runLauncherAsWorker",
     "has no counterpart: the launcher runs no ranks; add a "
     "worker, or remove the launcher and run the program in "
     "the workers"},
    {"spec.launcherAttachMode",
     "is not needed: the launcher reaches the workers' agents"},
    {"spec.elasticPolicy",
     "has no counterpart: change replicas while the job runs, and "
     "the ranks restart"},
    {"spec.enableDynamicWorker", "has no counterpart: each pod gets a fixed TF_CONFIG"},
};

static void conversion_note(struct conversion *c, const char *path, const char *text)
{
    strbuf_printf(c->notes, "%s: %s\n", path, text);
}

/* Takes a member out of an object; NULL if there is none. */
static struct node *
conversion_take(struct conversion *c, struct node *from, const char *key)
{
    const struct node *n = node_get(from, key);
    struct node *copy = n ? node_copy(c->b, n) : NULL;

    node_drop(from, key);
    return copy;
}

static struct node *rest_object(struct node *from, const char *key)
{
    for (struct node *n = from ? from->first : NULL; n; n = n->next) {
        if (n->key && strcmp(n->key, key) == 0 && n->type == NODE_OBJECT)
            return n;
    }
    return NULL;
}

/* Moves a member as it is. */
static void
move(struct conversion *c, struct node *from, const char *key, struct node *to)
{
    struct node *n = conversion_take(c, from, key);

    if (n)
        node_set(c->b, to, key, n);
}

/* --- what is left ---------------------------------------------------------------- */

static void note_rest(struct conversion *c, const struct node *o, const char *path)
{
    for (const struct node *n = o ? o->first : NULL; n; n = n->next) {
        const char *text = reason_none;
        char at[256];

        if (!n->key || n->type == NODE_NULL)
            continue;
        (void)snprintf(at, sizeof(at), "%s.%s", path, n->key);
        for (size_t i = 0; i < ARRAY_LEN(reasons); i++) {
            if (strcmp(at, reasons[i].path) == 0)
                text = reasons[i].text;
        }
        if (n->type == NODE_OBJECT && text == reason_none
            && (strstr(n->key, "Policy") || strstr(n->key, "ReplicaSpecs")
                || strstr(path, "ReplicaSpecs")))
            note_rest(c, n, at); /* its members, one by one */
        else
            conversion_note(c, at, text);
    }
}

/* --- runPolicy ------------------------------------------------------------------- */

static void convert_run(struct conversion *c, const char *clean, int64_t backoff)
{
    static const char *const moved[] = {"cleanPodPolicy", "ttlSecondsAfterFinished",
                                        "activeDeadlineSeconds", "backoffLimit",
                                        "suspend"};
    static const char *const scheduling[] = {"minAvailable", "queue", "minResources",
                                             "priorityClass", "scheduleTimeoutSeconds"};
    struct node *run = node_object(c->b), *from = rest_object(c->rest, "runPolicy");
    struct node *policy = rest_object(from, "schedulingPolicy"),
                *to = node_object(c->b);
    const char *by = node_str(c->rest, "runPolicy.managedBy");

    for (size_t i = 0; i < ARRAY_LEN(moved); i++) {
        move(c, c->rest, moved[i], run); /* where the older kinds have it */
        move(c, from, moved[i], run);
    }
    for (size_t i = 0; i < ARRAY_LEN(scheduling); i++)
        move(c, policy, scheduling[i], to);
    if (to && to->first)
        node_set(c->b, run, "schedulingPolicy", to);
    if (by && strstr(by, "kueue"))
        move(c, from, "managedBy", run);
    if (!node_get(run, "cleanPodPolicy"))
        node_set_str(c->b, run, "cleanPodPolicy", clean);
    if (!node_get(run, "backoffLimit") && backoff > 0)
        node_set_int(c->b, run, "backoffLimit", backoff);
    if (node_get(run, "backoffLimit"))
        conversion_note(
            c, "spec.runPolicy.backoffLimit",
            "counts restarts of the whole job: all pods are recreated, the launcher "
            "too");
    node_set(c->b, c->spec, "runPolicy", run);
}

/* --- roles ----------------------------------------------------------------------- */

static void note_restart(struct conversion *c, struct node *role, const char *path)
{
    const struct node *policy = conversion_take(c, role, "restartPolicy");
    char text[256], at[160];

    if (!policy || policy->type != NODE_STRING || strcmp(policy->u.s, "Never") == 0)
        return;
    (void)snprintf(at, sizeof(at), "%s.restartPolicy", path);
    (void)snprintf(
        text, sizeof(text),
        "\"%.20s\" has no counterpart: containers are not restarted in place; "
        "see runPolicy.backoffLimit and failureRules",
        policy->u.s);
    conversion_note(c, at, text);
}

/* Fields of a pod that the operator sets itself. */
static void clean_template(struct conversion *c, struct node *template)
{
    struct node *spec = rest_object(template, "spec");
    struct node *meta = rest_object(template, "metadata");

    (void)conversion_take(c, spec, "restartPolicy");
    (void)conversion_take(c, meta, "creationTimestamp");
    if (meta && !meta->first)
        node_drop(template, "metadata");
}

/* Moves sets[from] to replicaSpecs[to]. is_single: the role has no number of pods. */
static struct node *convert_role(struct conversion *c,
                                 const char *sets,
                                 const char *from,
                                 const char *to,
                                 bool is_single)
{
    struct node *all = rest_object(c->rest, sets), *role = rest_object(all, from);
    struct node *out = node_object(c->b), *template, *n;
    char path[128];

    if (!role)
        return NULL;
    (void)snprintf(path, sizeof(path), "spec.%s.%s", sets, from);
    template = conversion_take(c, role, "template");
    clean_template(c, template);
    n = conversion_take(c, role, "replicas");
    if (n && is_single && (n->type != NODE_INT || n->u.i > 1))
        conversion_note(c, path,
                        "has several replicas; a HorovodJob has one pod of this role");
    else if (n && !is_single)
        node_set(c->b, out, "replicas", n);
    note_restart(c, role, path);
    node_set(c->b, out, "template", template);
    node_set(c->b, node_child(c->b, c->spec, "replicaSpecs", NODE_OBJECT), to, out);
    if (!role->first)
        node_drop(all, from);
    if (!all->first)
        node_drop(c->rest, sets);
    return out;
}

static struct node *first_container(struct node *role)
{
    struct node *spec = rest_object(rest_object(role, "template"), "spec");

    for (struct node *n = spec ? spec->first : NULL; n; n = n->next) {
        if (strcmp(n->key, "containers") == 0)
            return n->first;
    }
    return NULL;
}

/* Workers of a job with a launcher run the agent, not an sshd. */
static void drop_command(struct conversion *c, struct node *worker, const char *path)
{
    static const char *const keys[] = {"command", "args"};
    struct node *container = first_container(worker);

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        char at[200];

        if (!conversion_take(c, container, keys[i]))
            continue;
        (void)snprintf(at, sizeof(at), "%s.template.spec.containers[0].%s", path,
                       keys[i]);
        conversion_note(
            c, at, "is not needed: workers of a job with a Launcher run hvd-agent");
    }
}

/* True if the container starts that program, directly or by a shell. */
static bool container_runs(const struct node *container, const char *program)
{
    static const char *const keys[] = {"command", "args"};

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const struct node *list = node_get(container, keys[i]);

        for (const struct node *w = list ? list->first : NULL; w; w = w->next) {
            if (w->type == NODE_STRING && strstr(w->u.s, program))
                return true;
        }
    }
    return false;
}

static void
check_launcher(struct conversion *c, struct node *launcher, const char *path)
{
    const struct node *container = first_container(launcher);
    char at[200];

    (void)snprintf(at, sizeof(at), "%s.template.spec.containers[0]", path);
    if (!launcher)
        return;
    if (!node_get(container, "command"))
        conversion_note(
            c, at,
            "has no command: write the image's own one, which Kubernetes does not "
            "report");
    if (container_runs(container, "plm_rsh_agent")
        || container_runs(container, "kubexec")
        || container_runs(container, "/etc/mpi/"))
        conversion_note(
            c, at,
            "names kubectl-delivery's files or an rsh agent in its command: remove "
            "them; the operator sets OMPI_MCA_plm_rsh_agent and the list of hosts");
}

/* --- kinds ----------------------------------------------------------------------- */

static void convert_slots(struct conversion *c)
{
    move(c, c->rest, "slotsPerWorker", c->spec);
    if (!node_get(c->spec, "slotsPerWorker"))
        node_set_int(c->b, c->spec, "slotsPerWorker", 1);
}

static void convert_mpi_sets(struct conversion *c,
                             const char *sets,
                             const char *launcher,
                             const char *worker)
{
    char at[100];

    convert_slots(c);
    (void)snprintf(at, sizeof(at), "spec.%s.%s", sets, launcher);
    check_launcher(c, convert_role(c, sets, launcher, "Launcher", true), at);
    (void)snprintf(at, sizeof(at), "spec.%s.%s", sets, worker);
    drop_command(c, convert_role(c, sets, worker, "Worker", false), at);
    if (!node_bool(c->rest, "runLauncherAsWorker", false))
        (void)conversion_take(c, c->rest, "runLauncherAsWorker");
}

static void convert_mpi(struct conversion *c)
{
    convert_mpi_sets(c, "mpiReplicaSpecs", "Launcher", "Worker");
    convert_run(c, "None", 6); /* the defaults of MPIJob */
}

static void convert_arena_elastic(struct conversion *c)
{
    convert_mpi_sets(c, "etReplicaSpecs", "launcher", "worker");
    convert_run(c, "None", 0);
}

/* The number of workers and slots from a total of GPUs or processing units. */
static void old_size(struct conversion *c, int64_t *ret_workers, int64_t *ret_slots)
{
    const char *total_of[] = {"gpus", "processingUnits"};
    const char *per_of[] = {"gpusPerNode", "processingUnitsPerNode"};

    *ret_workers = node_int(c->rest, "replicas", 1);
    *ret_slots = node_int(c->rest, "slotsPerWorker", 0);
    for (size_t i = 0; i < ARRAY_LEN(total_of); i++) {
        int64_t total = node_int(c->rest, total_of[i], 0);
        int64_t per = node_int(c->rest, per_of[i], OLD_GPUS_PER_NODE);

        if (total > 0 && per > 0) {
            int64_t slots = total < per ? total : per;

            *ret_workers = (total + per - 1) / per;
            *ret_slots = *ret_slots ? *ret_slots : slots;
        }
        (void)conversion_take(c, c->rest, total_of[i]);
        (void)conversion_take(c, c->rest, per_of[i]);
    }
    (void)conversion_take(c, c->rest, "replicas");
    (void)conversion_take(c, c->rest, "slotsPerWorker");
    *ret_slots = *ret_slots ? *ret_slots : 1;
}

/* One template for launcher and workers; the controller gave GPUs to the workers. */
static void convert_old_mpi(struct conversion *c)
{
    struct node *template = conversion_take(c, c->rest, "template"), *sets, *launcher,
                *worker;
    struct node *resources,
        *type = conversion_take(c, c->rest, "processingResourceType");
    int64_t n, slots;

    if (!template) { /* v1alpha1 as later versions write it */
        convert_mpi(c);
        return;
    }
    old_size(c, &n, &slots);
    clean_template(c, template);
    node_set_int(c->b, c->spec, "slotsPerWorker", slots);
    sets = node_child(c->b, c->spec, "replicaSpecs", NODE_OBJECT);
    launcher = node_child(c->b, sets, "Launcher", NODE_OBJECT);
    worker = node_child(c->b, sets, "Worker", NODE_OBJECT);
    node_set(c->b, launcher, "template", node_copy(c->b, template));
    node_set_int(c->b, worker, "replicas", n);
    node_set(c->b, worker, "template", template);
    if (!type || strcmp(type->type == NODE_STRING ? type->u.s : "", "cpu") != 0) {
        resources = node_child(c->b, first_container(worker), "resources", NODE_OBJECT);
        node_set_int(c->b, node_child(c->b, resources, "limits", NODE_OBJECT),
                     "nvidia.com/gpu", slots);
        resources = rest_object(first_container(launcher), "resources");
        node_drop(rest_object(resources, "limits"), "nvidia.com/gpu");
        node_drop(rest_object(resources, "requests"), "nvidia.com/gpu");
    }
    check_launcher(c, launcher, "spec");
    drop_command(c, worker, "spec");
    convert_run(c, "Running", 0);
}

static void convert_pytorch(struct conversion *c)
{
    struct node *master, *worker, *sets,
        *per = conversion_take(c, c->rest, "nprocPerNode");
    int64_t n = 0;

    master = convert_role(c, "pytorchReplicaSpecs", "Master", "Master", false);
    worker = convert_role(c, "pytorchReplicaSpecs", "Worker", "Worker", false);
    sets = node_child(c->b, c->spec, "replicaSpecs", NODE_OBJECT);
    if (per && per->type == NODE_INT)
        node_set(c->b, c->spec, "slotsPerWorker", per);
    else if (per && per->type == NODE_STRING
             && strspn(per->u.s, "0123456789") == strlen(per->u.s))
        node_set_int(c->b, c->spec, "slotsPerWorker", strtol(per->u.s, NULL, 10));
    if (master && worker)
        n = node_int(worker, "replicas", 1);
    if (master && worker
        && !node_equal(node_get(master, "template"), node_get(worker, "template")))
        conversion_note(
            c, "spec.pytorchReplicaSpecs.Worker.template",
            "differs from the master's, which is used: all workers of a HorovodJob "
            "have "
            "one template");
    if (master) {
        node_set_int(c->b, master, "replicas", n + node_int(master, "replicas", 1));
        node_set(c->b, sets, "Worker", node_copy(c->b, master));
        node_drop(sets, "Master");
    }
    worker = rest_object(sets, "Worker");
    if (container_runs(first_container(worker), "torchrun")
        || container_runs(first_container(worker), "torch.distributed"))
        conversion_note(
            c, "spec.replicaSpecs.Worker.template.spec.containers[0].command",
            "starts torchrun: write the program itself; the operator starts one "
            "process "
            "for each slot, with torchrun's variables");
    convert_run(c, "None", 0);
}

static void convert_tensorflow(struct conversion *c)
{
    const struct node *policy = conversion_take(c, c->rest, "successPolicy");
    const char *s = policy && policy->type == NODE_STRING ? policy->u.s : "";

    node_set_str(c->b, c->spec, "framework", "tensorflow");
    node_set_str(c->b, c->spec, "successPolicy",
                 strcmp(s, "AllWorkers") == 0 ? "AllWorkers" : "Worker0");
    if (convert_role(c, "tfReplicaSpecs", "Master", "Chief", true))
        conversion_note(c, "spec.tfReplicaSpecs.Master", "becomes the Chief");
    (void)convert_role(c, "tfReplicaSpecs", "Chief", "Chief", true);
    (void)convert_role(c, "tfReplicaSpecs", "Worker", "Worker", false);
    (void)convert_role(c, "tfReplicaSpecs", "PS", "PS", false);
    (void)convert_role(c, "tfReplicaSpecs", "Evaluator", "Evaluator", true);
    (void)convert_role(c, "tfReplicaSpecs", "Eval", "Evaluator", true);
    convert_run(c, "Running", 0);
}

static const struct {
    const char *kind, *group, *version; /* version NULL: any */
    convert_fn fn;
} kinds[] = {
    {"MPIJob", "kubeflow.org/", "v1alpha1", convert_old_mpi},
    {"MPIJob", "kubeflow.org/", NULL, convert_mpi},
    {"PyTorchJob", "kubeflow.org/", NULL, convert_pytorch},
    {"TFJob", "kubeflow.org/", NULL, convert_tensorflow},
    {"TrainingJob", "kai.alibabacloud.com/", NULL, convert_arena_elastic},
};

static convert_fn convert_find(const struct node *object)
{
    const char *kind = node_str(object, "kind");
    const char *version = node_str(object, "apiVersion");

    for (size_t i = 0; i < ARRAY_LEN(kinds) && kind && version; i++) {
        size_t n = strlen(kinds[i].group);

        if (strcmp(kind, kinds[i].kind) == 0 && strncmp(version, kinds[i].group, n) == 0
            && (!kinds[i].version || strcmp(version + n, kinds[i].version) == 0))
            return kinds[i].fn;
    }
    return NULL;
}

/* --- metadata -------------------------------------------------------------------- */

static void convert_metadata(struct conversion *c, struct node *out)
{
    static const char *const kept[] = {"name",   "generateName", "namespace",
                                       "labels", "annotations",  "finalizers"};
    struct node *from = node_copy(c->b, node_get(c->source, "metadata"));
    struct node *to = node_child(c->b, out, "metadata", NODE_OBJECT);

    for (size_t i = 0; i < ARRAY_LEN(kept); i++)
        move(c, from, kept[i], to);
    node_drop(rest_object(to, "annotations"),
              "kubectl.kubernetes.io/last-applied-configuration");
    if (rest_object(to, "annotations") && !rest_object(to, "annotations")->first)
        node_drop(to, "annotations");
    node_drop(to, "finalizers"); /* of another controller */
    if (node_get(from, "ownerReferences"))
        conversion_note(c, "metadata.ownerReferences",
                        "is dropped: the owner creates another kind");
}

struct node *job_convert(struct build *b,
                         const struct node *object,
                         struct strbuf *notes,
                         struct err *err)
{
    struct conversion c = {.b = b, .source = object, .notes = notes};
    struct node *out = node_object(b);
    convert_fn fn = convert_find(object);
    const char *kind = node_str(object, "kind");
    const char *version = node_str(object, "apiVersion");

    if (!fn) {
        (void)err_set(err, -ENOTSUP, "kind %s of %s has no conversion",
                      kind ? kind : "\"\"", version ? version : "\"\"");
        return NULL;
    }
    c.rest = node_copy(b, node_get(object, "spec"));
    if (!c.rest || c.rest->type != NODE_OBJECT) {
        (void)err_set(err, -EINVAL, "spec: missing");
        return NULL;
    }
    node_set_str(b, out, "apiVersion", JOB_API_VERSION);
    node_set_str(b, out, "kind", JOB_KIND);
    convert_metadata(&c, out);
    c.spec = node_child(b, out, "spec", NODE_OBJECT);
    fn(&c);
    note_rest(&c, c.rest, "spec");
    return b->status ? NULL : out;
}
