/* SPDX-License-Identifier: Apache-2.0 */
/* Texts as Kubernetes 1.34, Volcano and Kueue write them, and what is left of them. */
#include "tests/unit/unit.h"

#include "operator/core/wording.h"
#include "runtime/base/mem.h"

#define ID "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9"

struct wording_row {
    const char *from, *to;
    bool is; /* what the function returns */
};

static void check_words(const struct wording_row *t,
                        size_t n,
                        bool (*fn)(const char *, char *),
                        void (*plain)(const char *, char *))
{
    for (size_t i = 0; i < n; i++) {
        char text[WORDING_SIZE];
        bool is = t[i].is;

        if (fn)
            is = fn(t[i].from, text);
        else
            plain(t[i].from, text);
        if (strcmp(text, t[i].to) != 0 || is != t[i].is)
            fail_msg("%s\n  got:    %s (%d)\n  wanted: %s", t[i].from, text, is,
                     t[i].to);
    }
}

UNIT_TEST(refusals_name_the_rule_and_the_numbers)
{
    static const struct wording_row t[] = {
        {"pods \"j-worker-3\" is forbidden: exceeded quota: team-a, requested: "
         "requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=16, limited: "
         "requests.nvidia.com/gpu=16",
         "quota team-a: requests.nvidia.com/gpu used 16 of 16, it needs 8", true},
        {"pods \"j-worker-0\" is forbidden: exceeded quota: q, requested: "
         "limits.cpu=2,pods=1, used: limits.cpu=1500m,pods=4, limited: "
         "limits.cpu=3,pods=4",
         "quota q: limits.cpu used 1500m of 3, it needs 2; pods used 4 of 4, it needs "
         "1",
         true},
        {"pods \"x\" is forbidden: exceeded quota: q", "quota q: exceeded", true},
        {"pods \"x\" is forbidden: failed quota: compute: must specify limits.cpu for: "
         "main; limits.memory for: main",
         "quota compute: it must specify limits.cpu for: main; limits.memory for: main",
         true},
        {"pods \"x\" is forbidden: maximum cpu usage per Container is 1, but limit is "
         "2",
         "maximum cpu usage per Container is 1, but limit is 2", true},
        {"pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": "
         "allowPrivilegeEscalation != false (container \"main\" must set "
         "securityContext.allowPrivilegeEscalation=false)",
         "PodSecurity restricted:latest: allowPrivilegeEscalation != false (container "
         "\"main\" must set securityContext.allowPrivilegeEscalation=false)",
         true},
        {"pods \"x\" is forbidden: error looking up service account ml/trainer: "
         "serviceaccount \"trainer\" not found",
         "error looking up service account ml/trainer: serviceaccount \"trainer\" not "
         "found",
         true},
        {"pods \"x\" is forbidden: pod rejected: RuntimeClass \"nvidia\" not found",
         "RuntimeClass \"nvidia\" not found", true},
        {"pods \"x\" is forbidden: no PriorityClass with name high was found",
         "no PriorityClass with name high was found", true},
        {"pods \"x\" is forbidden: unable to create new content in namespace ml "
         "because "
         "it is being terminated",
         "unable to create new content in namespace ml because it is being terminated",
         true},
        {"pods is forbidden: User \"system:serviceaccount:ringmaster:hvd-operator\" "
         "cannot create resource \"pods\" in API group \"\" in the namespace \"ml\"",
         "User \"system:serviceaccount:ringmaster:hvd-operator\" cannot create "
         "resource "
         "\"pods\" in API group \"\" in the namespace \"ml\"",
         true},
        {"admission webhook \"validate.kyverno.svc-fail\" denied the request: labels "
         "are "
         "missing\n\nrequire-team: owner.",
         "webhook validate.kyverno.svc-fail: labels are missing  require-team: owner",
         true},
        {"admission webhook \"gatekeeper\" denied the request without explanation",
         "webhook gatekeeper: denied the request without explanation", true},
        {"etcdserver: request timed out", "etcdserver: request timed out", false},
    };

    check_words(t, ARRAY_LEN(t), wording_refusal, NULL);
}

UNIT_TEST(the_scheduler_says_what_lacks)
{
    static const struct wording_row t[] = {
        {"0/12 nodes are available: 12 Insufficient nvidia.com/gpu. no new claims to "
         "deallocate, preemption: 0/12 nodes are available: 12 No preemption victims "
         "found for incoming pod.",
         "0/12 nodes are available: 12 Insufficient nvidia.com/gpu", false},
        {"0/3 nodes are available: 1 node(s) had untolerated taint "
         "{node-role.kubernetes.io/control-plane: }, 2 Insufficient cpu. preemption: "
         "0/3 "
         "nodes are available: 1 Preemption is not helpful for scheduling, 2 No "
         "preemption "
         "victims found for incoming pod.",
         "0/3 nodes are available: 1 node(s) had untolerated taint "
         "{node-role.kubernetes.io/control-plane: }, 2 Insufficient cpu",
         false},
        {"0/99 nodes are available: 10 node(s) were unschedulable, 20 node(s) didn't "
         "match "
         "Pod's node affinity/selector, 3 Insufficient cpu, 30 node(s) had untolerated "
         "taint {a: b}, 31 node(s) didn't match pod topology spread constraints, 5 "
         "Insufficient memory, 8 Insufficient nvidia.com/gpu. no new claims to "
         "deallocate, "
         "preemption: not eligible due to preemptionPolicy=Never.",
         "0/99 nodes are available: 10 node(s) were unschedulable, 3 Insufficient cpu, "
         "5 "
         "Insufficient memory, 8 Insufficient nvidia.com/gpu, 3 more reasons",
         false},
        {"0/3 nodes are available: persistentvolumeclaim \"data\" not found. no new "
         "claims "
         "to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not "
         "helpful "
         "for scheduling.",
         "PersistentVolumeClaim data does not exist", false},
        {"0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. "
         "not "
         "found",
         "a PersistentVolumeClaim is not bound, see kubectl get pvc", false},
        {"waiting for ephemeral volume controller to create the persistentvolumeclaim "
         "\"j-worker-1-scratch\"",
         "PersistentVolumeClaim j-worker-1-scratch is not created yet", false},
        {"Scheduling is blocked due to non-empty scheduling gates",
         "its scheduling gates are not removed", false},
        {"no nodes available to schedule pods", "no nodes available to schedule pods",
         false},
        {"rejected due to timeout after waiting 60s at plugin Coscheduling",
         "rejected due to timeout after waiting 60s at plugin Coscheduling", false},
        {"waiting for resource claims to be created: resourceclaim \"gpu\" not found",
         "waiting for resource claims to be created: resourceclaim \"gpu\" not found",
         false},
    };

    check_words(t, ARRAY_LEN(t), NULL, wording_scheduler);
}

UNIT_TEST(an_image_is_named_with_one_cause)
{
    static const struct wording_row t[] = {
        {"Back-off pulling image \"r.example/train:2\": ErrImagePull: rpc error: code "
         "= "
         "NotFound desc = failed to pull and unpack image \"r.example/train:2\": "
         "failed to "
         "resolve reference \"r.example/train:2\": r.example/train:2: not found",
         "r.example/train:2: not found", false},
        {"failed to pull and unpack image \"r.example/x:1\": failed to resolve "
         "reference \"r.example/x:1\": pull access denied, repository does not "
         "exist or may require authorization: server message: insufficient_scope: "
         "authorization failed",
         "r.example/x:1: the registry denies access, or it does not exist; see "
         "imagePullSecrets",
         false},
        {"rpc error: code = Unknown desc = failed to pull and unpack image "
         "\"r.example/t\": "
         "failed to resolve reference \"r.example/t\": failed to do request: Head "
         "\"https://r.example/v2/t/manifests/latest\": dial tcp: lookup r.example on "
         "10.96.0.10:53: no such host",
         "r.example/t: dial tcp: lookup r.example on 10.96.0.10:53: no such host",
         false},
        {"failed to pull image \"x\": failed to do request: dial tcp: lookup r.example "
         "on "
         "10.96.0.10:53: read udp 10.244.0.5:54321->10.96.0.10:53: i/o timeout",
         "x: dial tcp: lookup r.example on 10.96.0.10:53: read udp 10.96.0.10:53: i/o "
         "timeout",
         false},
        {"Back-off pulling image \"x\"", "x", false},
        {"Failed to apply default image tag \"Team/X\": couldn't parse image name "
         "\"Team/X\": invalid reference format: repository name must be lowercase",
         "Team/X: the name is not valid", false},
        {"Container image \"x:1\" is not present with pull policy of Never",
         "x:1: it is not on the node, and imagePullPolicy is Never", false},
        {"failed to pull and unpack image \"x:1\": failed to copy: httpReadSeeker: "
         "failed "
         "open: unexpected status code https://r.example/x: 429 Too Many Requests - "
         "Server "
         "message: toomanyrequests: You have reached your pull rate limit.",
         "x:1: the registry limits requests, it tries again", false},
        {"failed to pull and unpack image \"x:1\": no match for platform in manifest: "
         "not "
         "found",
         "x:1: there is none for the platform of the node", false},
        {"failed to pull image \"x:1\": a new error.", "x:1: a new error", false},
        {"ErrImagePull", "(ErrImagePull)", false},
    };

    check_words(t, ARRAY_LEN(t), NULL, wording_image);
}

UNIT_TEST(volumes_are_named)
{
    static const struct wording_row t[] = {
        {"MountVolume.SetUp failed for volume \"data\" : configmap \"data\" not found",
         "volume data: configmap \"data\" not found", true},
        {"AttachVolume.Attach failed for volume \"pvc-1\" : rpc error: code = Internal "
         "desc "
         "= disk is gone",
         "volume pvc-1: disk is gone", true},
        {"Multi-Attach error for volume \"pvc-1\" Volume is already used by pod(s) "
         "other-0",
         "volume pvc-1: Volume is already used by pod(s) other-0", true},
        {"Unable to attach or mount volumes: unmounted volumes=[data shm], unattached "
         "volumes=[], failed to process volumes=[]: context deadline exceeded",
         "volume data shm: not mounted in time (context deadline exceeded)", true},
        {"MountVolume.SetUp failed for volume \"token\" : failed to sync secret cache: "
         "timed out waiting for the condition",
         "volume token: failed to sync secret cache: timed out waiting for the "
         "condition",
         true},
        {"Error: something", "Error: something", false},
    };

    check_words(t, ARRAY_LEN(t), wording_volume, NULL);
}

UNIT_TEST(what_a_sandbox_says_is_the_same_at_each_try)
{
    static const struct wording_row t[] = {
        {"Failed to create pod sandbox: rpc error: code = Unknown desc = failed to "
         "setup "
         "network for sandbox \"" ID
         "\": plugin type=\"calico\" failed (add): dial tcp "
         "10.0.0.1:443: connect: connection refused",
         "failed to setup network for sandbox \"*\": plugin type=\"calico\" failed "
         "(add): "
         "dial tcp 10.0.0.1:443: connect: connection refused",
         true},
        {"network is not ready: container runtime network not ready: "
         "NetworkReady=false "
         "reason:NetworkPluginNotReady message:Network plugin returns error: cni "
         "plugin "
         "not initialized",
         "container runtime network not ready: NetworkReady=false "
         "reason:NetworkPluginNotReady message:Network plugin returns error: cni "
         "plugin "
         "not initialized",
         true},
        {"other", "other", false},
    };

    check_words(t, ARRAY_LEN(t), wording_network, NULL);
}

UNIT_TEST(containers_do_not_start_for_one_reason)
{
    static const struct wording_row t[] = {
        {"configmap \"env\" not found", "configmap \"env\" not found", false},
        {"couldn't find key A in ConfigMap ml/env",
         "couldn't find key A in ConfigMap ml/env", false},
        {"container has runAsNonRoot and image will run as root (pod: "
         "\"j-worker-0_ml(d0c4d0a3-6e9b-4c3e-9a52-1f0e2b3c4d5e)\", container: main)",
         "container has runAsNonRoot and image will run as root", false},
        {"failed to create containerd task: failed to create shim task: OCI runtime "
         "create "
         "failed: runc create failed: unable to start container process: error during "
         "container init: exec: \"trainer\": executable file not found in $PATH: "
         "unknown",
         "exec: \"trainer\": executable file not found in $PATH", false},
        {"back-off 10s restarting failed container=main pod=j-launcher-x_ml(" ID ")",
         "it ends again and again, see kubectl logs --previous", false},
        {"back-off 5m0s restarting failed container=main pod=j-launcher-x_ml(" ID ")",
         "it ends again and again, see kubectl logs --previous", false},
        {"Error: secret \"s\" not found", "secret \"s\" not found", false},
    };

    check_words(t, ARRAY_LEN(t), NULL, wording_start);
}

UNIT_TEST(gangs_and_quotas_of_others_keep_their_numbers)
{
    static const struct wording_row volcano[] = {
        {"5/8 tasks in gang unschedulable: pod group is not ready, 8 Pending, 8 "
         "minAvailable; Pending: 3 Schedulable, 5 Unschedulable. Origin reason is "
         "j-worker-3: 0/3 nodes are unavailable: 3 Insufficient nvidia.com/gpu.",
         "5 of 8 pods do not fit (Volcano: 0/3 nodes are unavailable: 3 Insufficient "
         "nvidia.com/gpu)",
         false},
        {"8/8 tasks in gang unschedulable: pod group is not ready, 8 Pending, 8 "
         "minAvailable; Pending: 8 Unschedulable. Origin reason is queue resource "
         "quota "
         "insufficient: insufficient nvidia.com/gpu",
         "8 of 8 pods do not fit (Volcano: queue resource quota insufficient: "
         "insufficient nvidia.com/gpu)",
         false},
        {"2/2 tasks in gang unschedulable: pod group is not ready, 2 minAvailable",
         "2 of 2 pods do not fit", false},
        {"something new", "something new", false},
    };
    static const struct wording_row kueue[] = {
        {"couldn't assign flavors to pod set worker: insufficient unused quota for "
         "nvidia.com/gpu in flavor a100, 8 more needed",
         "insufficient unused quota for nvidia.com/gpu in flavor a100, 8 more needed",
         false},
        {"LocalQueue team-a doesn't exist", "LocalQueue team-a doesn't exist", false},
    };

    check_words(volcano, ARRAY_LEN(volcano), NULL, wording_volcano);
    check_words(kueue, ARRAY_LEN(kueue), NULL, wording_kueue);
}

UNIT_TEST(a_long_text_is_cut_between_characters)
{
    char from[2000], text[WORDING_SIZE];

    for (size_t i = 0; i < sizeof(from) - 1; i++)
        from[i] = i % 2 ? '\xa9' : '\xc3'; /* é */
    from[sizeof(from) - 1] = '\0';
    wording_kueue(from, text);
    assert_int_equal(strlen(text), WORDING_SIZE - 1);
    from[0] = 'x'; /* now the cut is in a character */
    memmove(from + 1, from, sizeof(from) - 2);
    from[1] = '\xc3';
    wording_kueue(from, text);
    assert_int_equal(text[strlen(text) - 1], '\xa9');
}

UNIT_MAIN(NULL, NULL)
