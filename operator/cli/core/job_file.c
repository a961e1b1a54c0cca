/* SPDX-License-Identifier: Apache-2.0 */
/* Reading files with jobs.
 *
 * Text is read as YAML first, which contains almost all of JSON and gives line numbers;
 * what only JSON allows (pairs of \u escapes) is read as JSON then. The problems of a job
 * are those of the operator's own decoder and validation, and few rules of the CRD that
 * these leave to the API server. */
#include "operator/cli/core/job_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/core/hvd/hvd_job.h"
#include "operator/core/mpi/mpi_job.h"
#include "operator/doc/json.h"
#include "operator/doc/yaml.h"
#include "runtime/base/mem.h"

#define NO_UID "00000000-0000-0000-0000-000000000000"

static const char *kind_of(const struct node *o)
{
    const char *kind = node_str(o, "kind");

    return kind ? kind : "";
}

/* Moves the objects of a List into the array. */
static void put_objects(struct build *b, struct node *all, const struct node *o)
{
    const struct node *items = node_get(o, "items");
    const char *kind = kind_of(o);
    size_t n = strlen(kind);
    bool is_list = items && n >= 4 && strcmp(kind + n - 4, "List") == 0;

    if (!is_list && o->type != NODE_NULL) {
        struct node *copy = node_copy(b, o);

        node_add(b, all, copy);
        return;
    }
    for (const struct node *c = items ? items->first : NULL; c; c = c->next)
        put_objects(b, all, c);
}

int job_file_read(struct arena *a,
                  const char *text,
                  size_t n,
                  const struct node **ret,
                  uint32_t *ret_line,
                  struct err *err)
{
    struct build b = {.arena = a};
    struct node *docs = NULL, *all, *one;
    const char *first = text + strspn(text, " \t\r\n");
    unsigned line = 0;
    int rc = yaml_read_all(a, text, n, &docs, err);

    *ret_line = 0;
    if (rc == -EINVAL && *first == '{' && json_read(a, text, n, &one, NULL) == 0) {
        docs = node_array(&b);
        node_add(&b, docs, one);
        rc = 0;
    }
    if (rc == -EINVAL && sscanf(err->text, "yaml: line %u: ", &line) == 1) {
        *ret_line = line;
        (void)err_set(err, rc, "%s", strchr(strchr(err->text, ':') + 1, ':') + 2);
    }
    if (rc < 0)
        return rc;
    all = node_array(&b);
    for (const struct node *c = docs ? docs->first : NULL; c; c = c->next)
        put_objects(&b, all, c);
    if (b.status)
        return err_set(err, b.status, "out of memory");
    *ret = all;
    return 0;
}

/* The member whose name begins the path; names may hold dots, so the longest counts. */
static const struct node *step_to_member(const struct node *o, const char **path)
{
    const struct node *best = NULL;
    size_t most = 0;

    for (const struct node *c = o->type == NODE_OBJECT ? o->first : NULL; c;
         c = c->next) {
        size_t n = strlen(c->key);

        if (n > most && strncmp(c->key, *path, n) == 0 && strchr(".[: ", (*path)[n])) {
            best = c;
            most = n;
        }
    }
    *path += most;
    return best;
}

uint32_t job_file_line(const struct node *object, const char *path)
{
    uint32_t line = object->line;

    while (object && *path) {
        if (*path == '[') {
            object = node_item(object, strtoul(path + 1, NULL, 10));
            path += strcspn(path, "]");
            path += *path == ']';
        } else {
            path += *path == '.';
            object = step_to_member(object, &path);
        }
        if (object && object->line)
            line = object->line;
        if (*path != '.' && *path != '[')
            break;
    }
    return line;
}

int job_file_kind(const struct node *object)
{
    const char *version = node_str(object, "apiVersion"), *kind = kind_of(object);

    if (!version)
        return -1;
    if (strcmp(kind, JOB_KIND) == 0 && strcmp(version, JOB_API_VERSION) == 0)
        return KUBE_JOB;
    if (strcmp(kind, MPI_KIND) == 0 && strcmp(version, MPI_API_VERSION) == 0)
        return KUBE_MPIJOB;
    return -1;
}

bool job_file_refuses(const struct node *object, char ret[JOB_FILE_TEXT])
{
    const char *kind = node_str(object, "kind"),
               *version = node_str(object, "apiVersion");
    size_t n = kind ? strlen(kind) : 0;

    if (object->type != NODE_OBJECT || !kind || !version) {
        (void)snprintf(ret, JOB_FILE_TEXT, "%s: missing",
                       object->type != NODE_OBJECT ? "kind"
                       : kind                      ? "apiVersion"
                                                   : "kind");
    } else if (strcmp(kind, JOB_KIND) == 0 || strcmp(kind, MPI_KIND) == 0) {
        (void)snprintf(ret, JOB_FILE_TEXT,
                       "apiVersion: \"%.100s\" is not one that hvd-operator serves%s",
                       version,
                       *kind == 'M' ? "; see kubectl hvd convert"
                                    : "; write ringmaster.dev/v1beta1");
    } else if (strncmp(version, "kubeflow.org/", 13) == 0 && n > 3
               && strcmp(kind + n - 3, "Job") == 0) {
        (void)snprintf(
            ret, JOB_FILE_TEXT,
            "kind: %.100s is not one that hvd-operator serves; see kubectl hvd "
            "convert",
            kind);
    } else {
        return false; /* a Service, say */
    }
    return true;
}

/* --- problems -------------------------------------------------------------------- */

static void
check_container(const struct node *c, const char *path, size_t i, struct strbuf *p)
{
    static const char *const required[] = {"name", "image"};

    if (c->type != NODE_OBJECT) {
        strbuf_printf(p, "%s[%zu]: must be an object, is %s\n", path, i,
                      node_type_name(c->type));
        return;
    }
    for (size_t k = 0; k < ARRAY_LEN(required); k++) {
        if (!node_str(c, required[k]) || !*node_str(c, required[k]))
            strbuf_printf(p, "%s[%zu].%s: missing\n", path, i, required[k]);
    }
}

/* What the CRD's schema requires of containers, and the operator leaves to it. */
static void check_containers(const struct node *sets, const char *of, struct strbuf *p)
{
    for (const struct node *r = sets ? sets->first : NULL; r; r = r->next) {
        const struct node *list = node_at(r, "template.spec.containers");
        char path[160];
        size_t i = 0;

        if (!r->key || !list || list->type != NODE_ARRAY)
            continue;
        (void)snprintf(path, sizeof(path), "%s.%.60s.template.spec.containers", of,
                       r->key);
        for (const struct node *c = list->first; c; c = c->next)
            check_container(c, path, i++, p);
    }
}

static struct node *
with_identity(struct build *b, const struct node *object, const char *ns)
{
    struct node *o = node_copy(b, object);
    struct node *meta = node_child(b, o, "metadata", NODE_OBJECT);

    if (!node_str(meta, "namespace"))
        node_set_str(b, meta, "namespace", ns);
    if (!node_str(meta, "uid"))
        node_set_str(b, meta, "uid", NO_UID);
    if (!node_str(meta, "name"))
        node_set_str(b, meta, "name", "");
    return o;
}

static const struct job_meta *
open_in(struct build *b, const struct node *o, struct strbuf *problems)
{
    const struct front *front = front_of((enum kube_kind)job_file_kind(o));
    struct job_meta *meta = arena_calloc(b->arena, 1, sizeof(*meta));
    struct err err = ERR_INIT;

    if (!meta || b->status || meta_decode(front->kind, o, meta, &err) < 0)
        return NULL;
    return front->open(o, meta, b->arena, problems);
}

const struct job_meta *job_file_open(struct build *b,
                                     const struct node *object,
                                     const char *ns,
                                     struct strbuf *problems)
{
    bool is_mpi = job_file_kind(object) == KUBE_MPIJOB;

    if (!node_str(object, "metadata.name"))
        strbuf_puts(problems, "metadata.name: missing\n");
    check_containers(
        node_at(object, is_mpi ? "spec.mpiReplicaSpecs" : "spec.replicaSpecs"),
        is_mpi ? "spec.mpiReplicaSpecs" : "spec.replicaSpecs", problems);
    return open_in(b, with_identity(b, object, ns), problems);
}
