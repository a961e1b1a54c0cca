/* SPDX-License-Identifier: Apache-2.0 */
/* URL paths of the kinds that the operator uses. Names come from outside (a namespace
 * flag, an object), so every element is encoded: none can leave its place in the
 * path. */
#include "operator/kube/path.h"

#include <string.h>

#include "runtime/base/mem.h"

static const struct {
    const char *name, *prefix, *plural;
} kinds[] = {
    [KUBE_JOB] = {"HorovodJob", "/apis/ringmaster.dev/v1beta1", "horovodjobs"},
    [KUBE_MPIJOB] = {"MPIJob", "/apis/kubeflow.org/v2beta1", "mpijobs"},
    [KUBE_POD] = {"Pod", "/api/v1", "pods"},
    [KUBE_SERVICE] = {"Service", "/api/v1", "services"},
    [KUBE_SECRET] = {"Secret", "/api/v1", "secrets"},
    [KUBE_CONFIGMAP] = {"ConfigMap", "/api/v1", "configmaps"},
    [KUBE_EVENT] = {"Event", "/api/v1", "events"},
    [KUBE_BATCH] = {"Job", "/apis/batch/v1", "jobs"},
    [KUBE_VOLCANO_GROUP] = {"PodGroup", "/apis/scheduling.volcano.sh/v1beta1",
                            "podgroups"},
    [KUBE_SCHEDULER_GROUP] = {"PodGroup", "/apis/scheduling.x-k8s.io/v1alpha1",
                              "podgroups"},
    [KUBE_PRIORITY_CLASS] = {"PriorityClass", "/apis/scheduling.k8s.io/v1",
                             "priorityclasses"},
    [KUBE_LEASE] = {"Lease", "/apis/coordination.k8s.io/v1", "leases"},
    [KUBE_WORKLOAD] = {"Workload", "/apis/kueue.x-k8s.io/v1beta1", "workloads"},
    [KUBE_TOKEN_REVIEW] = {"TokenReview", "/apis/authentication.k8s.io/v1",
                           "tokenreviews"},
    [KUBE_ACCESS_REVIEW] = {"SubjectAccessReview", "/apis/authorization.k8s.io/v1",
                            "subjectaccessreviews"},
};
_Static_assert(ARRAY_LEN(kinds) == KUBE_ACCESS_REVIEW + 1, "one row per kind");

const char *kube_kind_name(enum kube_kind k)
{
    return kinds[k].name;
}

const char *kube_api_version(enum kube_kind k)
{
    const char *prefix = kinds[k].prefix; /* /api/VERSION or /apis/GROUP/VERSION */

    return strchr(prefix + 1, '/') + 1;
}

static void path_encode(struct strbuf *out, const char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;

        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')
            || strchr("-_~", c))
            strbuf_putc(out, *s);
        else if (c == '.' && s[1] != '.' && s[1] != '\0') /* never ".." or "." alone */
            strbuf_putc(out, '.');
        else
            strbuf_printf(out, "%%%02X", c);
    }
}

void kube_path(struct strbuf *out,
               enum kube_kind kind,
               const char *ns,
               const char *name,
               const char *sub)
{
    strbuf_puts(out, kinds[kind].prefix);
    if (ns) {
        strbuf_puts(out, "/namespaces/");
        path_encode(out, ns);
    }
    strbuf_printf(out, "/%s", kinds[kind].plural);
    if (name) {
        strbuf_putc(out, '/');
        path_encode(out, name);
    }
    if (sub)
        strbuf_printf(out, "/%s", sub);
}

void kube_query(struct strbuf *out, const char *key, const char *value)
{
    if (!value)
        return;
    strbuf_printf(out, "%c%s=", strchr(strbuf_str(out), '?') ? '&' : '?', key);
    path_encode(out, value);
}
