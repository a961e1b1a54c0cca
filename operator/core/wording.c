/* SPDX-License-Identifier: Apache-2.0 */
/* Each function takes off what is around the cause: prefixes with the object's name,
 * codes of gRPC, ids of sandboxes, the scheduler's account of preemption. The texts are
 * those of the programs' sources; tests/unit/op_wording_test.c has them as they come.
 * Called by why.c and inquiry.c. */
#include "operator/core/wording.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

#define MAX_BYTES     (WORDING_SIZE - 1)
#define ID_DIGITS     32 /* hexadecimal, at least: of a sandbox, a container, a digest */
#define MAX_REASONS   4  /* of nodes, in the scheduler's list */
#define MAX_RESOURCES 3  /* of a quota */

/* On the stack: no text may depend on whether memory was there. */
struct words {
    char p[8 * WORDING_SIZE];
    size_t n;
};

__attribute__((format(printf, 2, 3))) static void
words_add(struct words *w, const char *fmt, ...)
{
    size_t room = sizeof(w->p) - w->n;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(w->p + w->n, room, fmt, ap);
    va_end(ap);
    if (n > 0)
        w->n += (size_t)n < room ? (size_t)n : room - 1;
}

static const char *text_after(const char *s, const char *word)
{
    const char *p = strstr(s, word);

    return p ? p + strlen(word) : NULL;
}

static bool text_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* The length of a run of hexadecimal digits and dashes that is an id; 0: it is none. */
static size_t id_length(const char *s)
{
    size_t n = 0, n_digits = 0;

    while (isxdigit((unsigned char)s[n]) || s[n] == '-')
        n_digits += s[n++] != '-';
    return n_digits >= ID_DIGITS && !isalnum((unsigned char)s[n]) ? n : 0;
}

/* "rpc error: code = Unknown desc = " */
static size_t grpc_length(const char *s)
{
    const char *end =
        text_starts(s, "rpc error: code = ") ? strstr(s, " desc = ") : NULL;

    return end ? (size_t)(end - s) + strlen(" desc = ") : 0;
}

/* "10.0.0.5:54321->10.96.0.10:53", from the arrow on. */
static bool is_connection(const char *s)
{
    return s[0] == '-' && s[1] == '>' && (isdigit((unsigned char)s[2]) || s[2] == '[');
}

/* n bytes of s into ret, as one line, without ids and codes, and without the full stop. */
static void put_clean(const char *s, size_t n, char ret[WORDING_SIZE])
{
    const char *end = s + n;
    size_t k = 0, skip;

    while (s < end && k < MAX_BYTES) {
        if ((skip = grpc_length(s)) > 0) {
            s += skip;
        } else if (!(k > 0 && isalnum((unsigned char)ret[k - 1]))
                   && (skip = id_length(s)) > 0) {
            ret[k++] = '*';
            s += skip;
        } else if (is_connection(s)) { /* the sender's port is another one each time */
            while (k > 0 && ret[k - 1] != ' ')
                k--;
            s += 2;
        } else {
            ret[k++] = (unsigned char)*s < ' ' ? ' ' : *s;
            s++;
        }
    }
    while (s < end && k > 0 && ((unsigned char)*s & 0xc0) == 0x80) {
        k--; /* cut at a character's start */
        s--;
    }
    while (k > 0 && strchr(" .", ret[k - 1]))
        k--;
    ret[k] = '\0';
}

static void put_text(const char *s, char ret[WORDING_SIZE])
{
    put_clean(s, strlen(s), ret);
}

/* What is between the first two quotation marks; false: nothing is. */
static bool text_find_quoted(const char *s, const char **ret, size_t *ret_n)
{
    const char *from = strchr(s, '"'), *to = from ? strchr(from + 1, '"') : NULL;

    if (!to || to == from + 1)
        return false;
    *ret = from + 1;
    *ret_n = (size_t)(to - from - 1);
    return true;
}

/* --- the API server ----------------------------------------------------------------- */

/* One list of a quota's message, "cpu=1,memory=2Gi". */
struct amount_list {
    const char *p;
    size_t n;
};

static bool list_find(const char *s, const char *word, struct amount_list *ret)
{
    ret->p = text_after(s, word);
    if (!ret->p)
        return false;
    ret->n = strcspn(ret->p, " ");
    while (ret->n > 0 && strchr(",;", ret->p[ret->n - 1]))
        ret->n--;
    return true;
}

/* The value of a key in a list. */
static struct amount_list
list_value(const struct amount_list *list, const char *key, size_t n_key)
{
    const char *s = list->p, *end = list->p + list->n;

    while (s < end) {
        size_t n = strcspn(s, ",");

        if (s + n > end)
            n = (size_t)(end - s);
        if (n > n_key && strncmp(s, key, n_key) == 0 && s[n_key] == '=')
            return (struct amount_list){s + n_key + 1, n - n_key - 1};
        s += n + 1;
    }
    return (struct amount_list){"?", 1};
}

static void put_quota(const char *s, struct words *out)
{
    const char *name = text_after(s, "exceeded quota: ");
    struct amount_list requested, used, limited;
    const char *key, *end;

    words_add(out, "quota %.*s: ", (int)strcspn(name, ", "), name);
    if (!list_find(name, "requested: ", &requested) || !list_find(name, "used: ", &used)
        || !list_find(name, "limited: ", &limited)) {
        words_add(out, "%s", "exceeded");
        return;
    }
    key = limited.p;
    end = limited.p + limited.n;
    for (unsigned n = 0; key < end && n < MAX_RESOURCES; n++) {
        size_t n_key = strcspn(key, "=,");
        struct amount_list r = list_value(&requested, key, n_key),
                           u = list_value(&used, key, n_key),
                           l = list_value(&limited, key, n_key);

        words_add(out, "%s%.*s used %.*s of %.*s, it needs %.*s", n ? "; " : "",
                  (int)n_key, key, (int)u.n, u.p, (int)l.n, l.p, (int)r.n, r.p);
        key += strcspn(key, ",") + 1;
    }
}

bool wording_refusal(const char *message, char ret[WORDING_SIZE])
{
    const char *why = text_after(message, " is forbidden: "), *p;
    struct words text = {.n = 0};

    if (!why)
        why = message;
    if (strstr(why, "exceeded quota: ")) {
        put_quota(why, &text);
    } else if ((p = text_after(why, "failed quota: "))) {
        words_add(&text, "quota %.*s: it %s", (int)strcspn(p, ":"), p,
                  p[strcspn(p, ":")] ? p + strcspn(p, ":") + 2 : "must be complete");
    } else if ((p = text_after(why, "admission webhook \""))) {
        const char *denied = text_after(p, "denied the request: ");

        words_add(&text, "webhook %.*s: %s", (int)strcspn(p, "\""), p,
                  denied ? denied : p + strcspn(p, " ") + 1);
    } else if (text_starts(why, "violates PodSecurity \"")) {
        p = text_after(why, "violates PodSecurity \"");
        words_add(&text, "PodSecurity %.*s%s", (int)strcspn(p, "\""), p,
                  p + strcspn(p, "\"") + 1);
    } else if (text_starts(why, "pod rejected: ")) {
        words_add(&text, "%s", text_after(why, "pod rejected: "));
    } else {
        put_text(why, ret);
        return why != message;
    }
    put_text(text.p, ret);
    return true;
}

/* --- schedulers --------------------------------------------------------------------- */

/* Where the next reason of "12 Insufficient cpu, 3 node(s) had ..." starts. */
static const char *next_reason(const char *s, const char *end)
{
    for (; s + 2 < end; s++) {
        if (s[0] == ',' && s[1] == ' ' && isdigit((unsigned char)s[2]))
            return s + 2;
    }
    return NULL;
}

static bool reason_is_lack(const char *s)
{
    return text_starts(s + strspn(s, "0123456789"), " Insufficient ");
}

/* Of many reasons those of resources and the first others. */
static void put_reasons(const char *s, const char *end, struct words *out)
{
    unsigned n_lack = 0, n_other = 0, n_left = 0, n_put = 0;

    for (const char *p = s; p; p = next_reason(p, end))
        n_lack += reason_is_lack(p);
    for (const char *p = s; p;) {
        const char *next = next_reason(p, end);
        bool is_lack = reason_is_lack(p);

        if (is_lack
            || n_other + (n_lack < MAX_REASONS ? n_lack : MAX_REASONS) < MAX_REASONS) {
            n_other += !is_lack;
            words_add(out, "%s%.*s", n_put++ ? ", " : "",
                      (int)((next ? next - 2 : end) - p), p);
        } else {
            n_left++;
        }
        p = next;
    }
    if (n_left > 0)
        words_add(out, ", %u more reason%s", n_left, n_left == 1 ? "" : "s");
}

/* What follows is about preemption: no pod can be preempted, a consequence. */
static const char *reasons_end(const char *s)
{
    static const char *const marks[] = {
        " no new claims to deallocate, preemption: ", " no new claims to deallocate",
        " preemption: "};
    const char *end = s + strlen(s);

    for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
        const char *p = strstr(s, marks[i]);

        if (p && p < end)
            end = p;
    }
    while (end > s && strchr(" .", end[-1]))
        end--;
    return end;
}

/* A claim without a volume: no node can help, so their number says nothing. */
static bool put_claim(const char *s, struct words *out)
{
    const char *name = text_after(s, "persistentvolumeclaim \""), *p;

    if (name && text_starts(name + strcspn(name, "\""), "\" not found")) {
        words_add(out, "PersistentVolumeClaim %.*s does not exist",
                  (int)strcspn(name, "\""), name);
        return true;
    }
    if (strstr(s, "unbound immediate PersistentVolumeClaims")) {
        words_add(out, "%s",
                  "a PersistentVolumeClaim is not bound, see kubectl get pvc");
        return true;
    }
    p = text_after(s, "waiting for ephemeral volume controller to create the "
                      "persistentvolumeclaim \"");
    if (p)
        words_add(out, "PersistentVolumeClaim %.*s is not created yet",
                  (int)strcspn(p, "\""), p);
    return p != NULL;
}

void wording_scheduler(const char *message, char ret[WORDING_SIZE])
{
    const char *end = reasons_end(message);
    const char *list = text_after(message, " nodes are available: ");
    struct words text = {.n = 0};

    if (strstr(message, "non-empty scheduling gates")) {
        words_add(&text, "%s", "its scheduling gates are not removed");
    } else if (!put_claim(message, &text)) {
        words_add(&text, "%.*s", (int)((list && list < end ? list : end) - message),
                  message);
        if (list && list < end)
            put_reasons(list, end, &text);
    }
    put_text(text.p, ret);
}

/* gang.go: "5/8 tasks in gang unschedulable: pod group is not ready, 8 Pending, 8
 * minAvailable; Pending: 3 Schedulable, 5 Unschedulable. Origin reason is demo-worker-3:
 * 0/3 nodes are unavailable: 3 Insufficient nvidia.com/gpu." */
void wording_volcano(const char *message, char ret[WORDING_SIZE])
{
    char *end;
    unsigned long n = strtoul(message, &end, 10), of = 0;
    const char *origin = text_after(message, "Origin reason is ");
    struct words text = {.n = 0};

    if (end != message && *end == '/')
        of = strtoul(end + 1, &end, 10);
    if (of == 0 || !text_starts(end, " tasks in gang unschedulable: ")) {
        put_text(message, ret);
        return;
    }
    words_add(&text, "%lu of %lu pods do not fit", n, of);
    if (origin && origin[strcspn(origin, " :")] == ':')
        origin += strcspn(origin, ":") + 2; /* behind the name of one pod */
    if (origin)
        words_add(&text, " (Volcano: %.*s)", (int)(reasons_end(origin) - origin),
                  origin);
    put_text(text.p, ret);
}

void wording_kueue(const char *message, char ret[WORDING_SIZE])
{
    const char *p = message, *colon;

    if (text_starts(p, "couldn't assign flavors to pod set ")
        && (colon = strstr(p, ": ")))
        p = colon + 2;
    put_text(p, ret);
}

/* --- the kubelet -------------------------------------------------------------------- */

/* Causes that registries and container runtimes word in many ways. */
static const char *image_cause(const char *s)
{
    static const struct {
        const char *mark, *cause;
    } t[] = {
        {"pull QPS exceeded", "the kubelet limits its pulls, it tries again"},
        {"toomanyrequests", "the registry limits requests, it tries again"},
        {"429 Too Many Requests", "the registry limits requests, it tries again"},
        {"pull access denied", "the registry denies access, or it does not exist; see "
                               "imagePullSecrets"},
        {"insufficient_scope", "the registry denies access; see imagePullSecrets"},
        {"401 Unauthorized", "the registry denies access; see imagePullSecrets"},
        {"403 Forbidden", "the registry denies access; see imagePullSecrets"},
        {"no basic auth credentials", "the registry denies access; see "
                                      "imagePullSecrets"},
        {"no match for platform", "there is none for the platform of the node"},
        {"no space left on device", "no space left on the node"},
        {"pull policy of Never", "it is not on the node, and imagePullPolicy is Never"},
        {"couldn't parse image name", "the name is not valid"},
        {"server gave HTTP response to HTTPS client", "the registry does not use TLS"},
        {"certificate signed by unknown authority",
         "the node does not trust the registry's certificate"},
        {"manifest unknown", "not found"},
        {": not found", "not found"},
        {"code = NotFound", "not found"},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        if (strstr(s, t[i].mark))
            return t[i].cause;
    }
    return NULL;
}

/* The network's own words: "dial tcp: lookup registry.example: no such host". */
static const char *image_net_cause(const char *s)
{
    const char *p = strstr(s, "dial tcp");

    return p ? p : strstr(s, "net/http: ");
}

void wording_image(const char *message, char ret[WORDING_SIZE])
{
    const char *image = "", *why = image_cause(message), *behind;
    size_t n = 0;
    struct words text = {.n = 0};

    if (!text_find_quoted(message, &image, &n)) {
        words_add(&text, "(%s)", message);
        put_text(text.p, ret);
        return;
    }
    if (!why)
        why = image_net_cause(message);
    behind = image + n + 1;
    if (!why && text_starts(behind, ": "))
        why = behind + 2;
    words_add(&text, "%.*s%s%s", (int)n, image, why ? ": " : "", why ? why : "");
    put_text(text.p, ret);
}

/* "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[],
 * failed to process volumes=[]: context deadline exceeded" */
static void put_unmounted(const char *s, struct words *out)
{
    const char *names = text_after(s, "unmounted volumes=["), *why = NULL;

    for (const char *p = s; (p = strstr(p, "]: ")); p += 3)
        why = p + 3;
    words_add(out, "volume %.*s: not mounted in time%s%s%s",
              names ? (int)strcspn(names, "]") : 1, names ? names : "?",
              why ? " (" : "", why ? why : "", why ? ")" : "");
}

bool wording_volume(const char *message, char ret[WORDING_SIZE])
{
    static const char *const marks[] = {"MountVolume.", "AttachVolume.", "MapVolume.",
                                        "Multi-Attach error for volume "};
    const char *name, *why;
    bool is_volume = false;
    size_t n;
    struct words text = {.n = 0};

    for (size_t i = 0; i < ARRAY_LEN(marks); i++)
        is_volume |= text_starts(message, marks[i]);
    if (text_starts(message, "Unable to attach or mount volumes: ")) {
        put_unmounted(message, &text);
    } else if (is_volume && text_find_quoted(message, &name, &n)) {
        why = name + n + 1;
        why += strspn(why, " :");
        words_add(&text, "volume %.*s: %s", (int)n, name, why);
    } else {
        put_text(message, ret);
        return false;
    }
    put_text(text.p, ret);
    return true;
}

bool wording_network(const char *message, char ret[WORDING_SIZE])
{
    static const char *const marks[] = {"Failed to create pod sandbox: ",
                                        "network is not ready: "};

    for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
        if (text_starts(message, marks[i])) {
            put_text(message + strlen(marks[i]), ret);
            return true;
        }
    }
    put_text(message, ret);
    return false;
}

void wording_start(const char *message, char ret[WORDING_SIZE])
{
    static const char *const layers[] = {
        "failed to create containerd task: ",  "failed to create shim task: ",
        "OCI runtime create failed: ",         "runc create failed: ",
        "unable to start container process: ", "error during container init: "};
    const char *p = message, *names;

    if (text_starts(p, "back-off ") && strstr(p, "restarting failed container")) {
        put_text("it ends again and again, see kubectl logs --previous", ret);
        return;
    }
    if (text_starts(p, "Error: "))
        p += strlen("Error: ");
    for (bool is_more = true; is_more;) {
        is_more = false;
        for (size_t i = 0; i < ARRAY_LEN(layers); i++) {
            if (text_starts(p, layers[i])) {
                p += strlen(layers[i]);
                is_more = true;
            }
        }
    }
    names = strstr(p, " (pod: "); /* and the container */
    if (!names)
        names = strstr(p, ": unknown"); /* the class of an error without one */
    put_clean(p, names ? (size_t)(names - p) : strlen(p), ret);
}
