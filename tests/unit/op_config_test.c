/* SPDX-License-Identifier: Apache-2.0 */
/* kubeconfig in its forms, the pod's service account, and the bearer token's rotation.
 */
#include "tests/unit/unit.h"

#include "operator/kube/bearer.h"
#include "operator/kube/config.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"
#include "tests/unit/torture.h"

#define HEAD                                                                           \
    "apiVersion: v1\nkind: Config\ncurrent-context: c\n"                               \
    "contexts: [{name: other, context: {}}, {name: c, context: {cluster: k, user: "    \
    "u}}]\n"
#define V1      "apiVersion: client.authentication.k8s.io/v1"
#define CLUSTER "clusters: [{name: k, cluster: {server: 'https://h:6443'}}]\n"
#define USER(u) HEAD CLUSTER "users: [{name: u, user: {" u "}}]\n"
#define SERVER(c)                                                                      \
    HEAD "clusters: [{name: k, cluster: {" c "}}]\nusers: [{name: u, user: {}}]\n"

static int config_parse(const char *text, struct kube_config *ret, struct err *err)
{
    return kube_config_parse(text, strlen(text), "/nowhere", ret, err);
}

/* What the text says, which must be good. */
static struct kube_config config_of(const char *text)
{
    struct kube_config c;
    struct err e = ERR_INIT;

    if (config_parse(text, &c, &e) < 0)
        fail_msg("%s: %s", text, e.text);
    return c;
}

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(fd_write_file(path, text, strlen(text), 0600, NULL), 0);
}

UNIT_TEST(certificates_inline)
{
    struct kube_config c =
        config_of(HEAD "clusters: [{name: k, cluster: {server: 'https://h:6443//', "
                       "certificate-authority-data: Q0E=, tls-server-name: kubernetes, "
                       "proxy-url: 'http://p:3128'}}]\n"
                       "users: [{name: u, user: {client-certificate-data: Q0VSVA==, "
                       "client-key-data: S0VZ}}]\n");

    assert_string_equal(c.server, "https://h:6443");
    assert_string_equal(c.ca_pem, "CA");
    assert_string_equal(c.cert_pem, "CERT");
    assert_string_equal(c.key_pem, "KEY");
    assert_string_equal(c.tls_server_name, "kubernetes");
    assert_string_equal(c.proxy_url, "http://p:3128");
    assert_null(c.token);
    kube_config_release(&c);
    kube_config_release(&c); /* twice is once */
}

UNIT_TEST(json_is_yaml_too)
{
    CLEANUP(kube_config_release)
    struct kube_config c =
        config_of("{\"current-context\": \"c\", \"contexts\": [{\"name\": \"c\", "
                  "\"context\": {\"cluster\": \"k\", \"namespace\": \"mine\"}}], "
                  "\"clusters\": [{\"name\": \"k\", \"cluster\": {\"server\": "
                  "\"http://127.0.0.1:8001\"}}]}");

    assert_string_equal(c.ns, "mine");
    assert_string_equal(c.server, "http://127.0.0.1:8001");
}

UNIT_TEST(files_are_found_beside_the_kubeconfig)
{
    char dir[] = "/tmp/op-config-XXXXXX", path[64];
    struct kube_config c;
    struct err e = ERR_INIT;

    assert_non_null(mkdtemp(dir));
    write_text(dir, "ca.crt", "PEM");
    write_text(dir, "config",
               HEAD "clusters: [{name: k, cluster: {server: 'https://h', "
                    "certificate-authority: ca.crt}}]\n"
                    "users: [{name: u, user: {tokenFile: t, token: spare}}]\n");
    (void)snprintf(path, sizeof(path), "%s/config", dir);
    assert_int_equal(kube_config_load(NULL, path, "/home", &c, &e), 0);
    assert_string_equal(c.ca_pem, "PEM");
    assert_memory_equal(c.ca_file, dir, strlen(dir)); /* and read again later */
    assert_string_equal(c.token, "spare");
    assert_memory_equal(c.token_file, dir, strlen(dir));
    kube_config_release(&c);
    (void)snprintf(path, sizeof(path), "%s/ca.crt", dir);
    (void)unlink(path);
    (void)snprintf(path, sizeof(path), "%s/config", dir);
    assert_int_equal(kube_config_load(path, NULL, NULL, &c, &e), -ENOENT);
    assert_non_null(strstr(e.text, "ca.crt")); /* which file */
    (void)unlink(path);
    assert_true(kube_config_load(path, NULL, NULL, &c, &e) < 0);
    assert_non_null(strstr(e.text, path));
    (void)rmdir(dir);
}

UNIT_TEST(unsupported_settings_are_refused)
{
    static const struct {
        const char *text, *says;
    } t[] = {
        {"", "current-context: missing"},
        {"[]", "current-context: missing"},
        {"a: [", "yaml"},
        {"current-context: x\n", "contexts has no entry named \"x\""},
        {HEAD, "clusters has no entry named \"k\""},
        {HEAD CLUSTER, "users has no entry named \"u\""},
        {SERVER(""), "no server"},
        {SERVER("server: 5"), "server: must be a string, is an integer"},
        {SERVER("server: 'http://h:80'"), "must begin with https://"},
        {SERVER("server: 'http://127.0.0.1.evil.org'"), "must begin with https://"},
        {SERVER("server: 'https://a:secret@h'"),
         "server: must not have a user or a password"},
        {SERVER("server: 'ftp://secret@h/'"),
         "server: must not have a user or a password"},
        {SERVER("server: 'https://h', insecure-skip-tls-verify: true, "
                "certificate-authority-data: Q0E="),
         "contradict each other"},
        {SERVER("server: 'https://h', proxy-url: 'ftp://secret@p'"),
         "proxy-url: must begin with"},
        {USER("auth-provider: {name: gcp}"), "auth-provider was removed"},
        {USER("username: a"), "password is missing"},
        {USER("username: 'a:b', password: c"), "username: must not have a colon"},
        {USER("as-groups: [g]"), "need as"},
        {USER("as: \"a\\nX: b\""), "of one line"},
        {USER("as: a, as-user-extra: [b]"), "as-user-extra: must be an object"},
        {USER("exec: {command: aws}"), "exec.apiVersion"},
        {USER(
             "exec: {command: aws, apiVersion: client.authentication.k8s.io/v1alpha1}"),
         "v1alpha1\" is not client.authentication.k8s.io/v1 or"},
        {USER("exec: {" V1 "}"), "exec.command: missing"},
        {USER("exec: {" V1 ", command: a, args: [1]}"),
         "exec.args[0]: must be a string"},
        {USER("exec: {" V1 ", command: a, env: [{name: 'A=B', value: c}]}"),
         "exec.env[0]: must have"},
        {USER("exec: {" V1 ", command: a, interactiveMode: Always}"),
         "Always needs a terminal"},
        {USER("exec: {" V1 ", command: a, interactiveMode: Maybe}"),
         "\"Maybe\" is not one of"},
        {USER("client-certificate-data: Q0E="), "client-key is missing"},
        {USER("client-certificate-data: '%%'"),
         "client-certificate-data: is not base64"},
        {USER("token: \"a\\nX-Evil: b\""), "token: must be one line"},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct err e = ERR_INIT;
        struct kube_config c;

        assert_true(config_parse(t[i].text, &c, &e) < 0);
        if (!strstr(e.text, t[i].says))
            fail_msg("case %zu says \"%s\", not \"%s\"", i, e.text, t[i].says);
        assert_null(strstr(e.text, "secret"));
    }
}

UNIT_TEST(the_first_file_with_a_setting_counts)
{
    char dir[] = "/tmp/op-config-XXXXXX", list[256], command[64];
    struct kube_config c;
    struct err e = ERR_INIT;

    assert_non_null(mkdtemp(dir));
    write_text(dir, "a", "clusters: [{name: k, cluster: {server: 'https://a'}}]\n");
    write_text(dir, "b",
               "current-context: c\n"
               "clusters: [{name: k, cluster: {server: 'https://b', tls-server-name: "
               "b}}]\nusers: [{name: u, user: {tokenFile: t}}]\n");
    write_text(dir, "c",
               "current-context: other\n"
               "contexts: [{name: c, context: {cluster: k, user: u, namespace: n}}]\n"
               "users: [{name: u, user: {token: later}}]\n");
    (void)snprintf(list, sizeof(list), ":%s/none:%s/a:%s/b:%s/c", dir, dir, dir, dir);
    assert_int_equal(kube_config_load(NULL, list, NULL, &c, &e), 0);
    assert_string_equal(c.server, "https://a");
    assert_null(c.tls_server_name); /* entries are not mixed */
    assert_string_equal(c.ns, "n");
    assert_null(c.token);
    (void)snprintf(list, sizeof(list), "%s/t", dir);
    assert_string_equal(c.token_file, list);
    kube_config_release(&c);
    (void)snprintf(list, sizeof(list), "%s/none:%s/neither", dir, dir);
    assert_int_equal(kube_config_load(NULL, list, NULL, &c, &e), -ENOENT);
    assert_non_null(strstr(e.text, "no file of"));
    (void)snprintf(command, sizeof(command), "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

UNIT_TEST(impersonation_becomes_headers)
{
    CLEANUP(kube_config_release)
    struct kube_config c =
        config_of(USER("token: t, as: jane, as-uid: '7', as-groups: [a, b c], "
                       "as-user-extra: {Acme/Dept: [x, y], scope: [z]}"));

    assert_string_equal(c.impersonate, "Impersonate-User: jane\nImpersonate-Uid: 7\n"
                                       "Impersonate-Group: a\nImpersonate-Group: b c\n"
                                       "Impersonate-Extra-acme%2Fdept: x\n"
                                       "Impersonate-Extra-acme%2Fdept: y\n"
                                       "Impersonate-Extra-scope: z\n");
}

UNIT_TEST(a_plug_in_is_described)
{
    struct kube_config c = config_of(
        HEAD "clusters: [{name: k, cluster: {server: 'https://h', tls-server-name: n, "
             "insecure-skip-tls-verify: true, extensions: [{name: "
             "client.authentication.k8s.io/exec, extension: {audience: a}}]}}]\n"
             "users: [{name: u, user: {exec: {" V1
             ", command: bin/get, args: [token, -x], env: [{name: A, value: 'b=c'}], "
             "installHint: \"two\\nlines\", interactiveMode: IfAvailable, "
             "provideClusterInfo: true}}}]\n");

    assert_true(c.is_insecure);
    assert_string_equal(c.exec->argv[0], "/nowhere/bin/get");
    assert_string_equal(c.exec->argv[2], "-x");
    assert_null(c.exec->argv[3]);
    assert_string_equal(c.exec->env[0], "A=b=c");
    assert_string_equal(
        c.exec->info,
        "{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":"
        "\"ExecCredential\",\"spec\":{\"interactive\":false,\"cluster\":{\"server\":"
        "\"https://h\",\"tls-server-name\":\"n\",\"insecure-skip-tls-verify\":true,"
        "\"config\":{\"audience\":\"a\"}}}}");
    kube_config_release(&c);
    c = config_of(USER("token: t, exec: {" V1 ", command: get}"));
    assert_null(c.exec); /* a token wins */
    kube_config_release(&c);
}

static int parse_once(void *arg)
{
    struct kube_config c;
    int rc = config_parse(arg, &c, NULL);

    if (rc == 0)
        kube_config_release(&c);
    return rc;
}

UNIT_TEST(out_of_memory_is_reported)
{
    static char token[] =
        HEAD "clusters: [{name: k, cluster: {server: 'https://h', "
             "certificate-authority-data: Q0E=}}]\nusers: [{name: u, user: {token: "
             "t}}]\n";
    static char plug_in[] =
        HEAD "clusters: [{name: k, cluster: {server: 'https://h', "
             "certificate-authority-data: Q0E=}}]\nusers: [{name: u, user: {as: a, "
             "exec: {" V1 ", command: get, args: [a], env: [{name: A, value: b}], "
             "provideClusterInfo: true}}}]\n";

    torture(parse_once, token);
    torture(parse_once, plug_in);
}

UNIT_TEST(a_pod_finds_its_server)
{
    struct kube_config c;
    struct err e = ERR_INIT;

    assert_int_equal(kube_config_incluster("10.96.0.1", "443", "/nowhere", &c, &e), 0);
    assert_string_equal(c.server, "https://10.96.0.1:443");
    assert_string_equal(c.ca_file, "/nowhere/ca.crt");
    assert_string_equal(c.token_file, "/nowhere/token");
    kube_config_release(&c);
    assert_int_equal(kube_config_incluster("fd00::1", "443", "/nowhere", &c, &e), 0);
    assert_string_equal(c.server, "https://[fd00::1]:443");
    kube_config_release(&c);
    assert_int_equal(kube_config_incluster(NULL, "443", "/", &c, &e), -ENOENT);
    assert_non_null(strstr(e.text, "--kubeconfig"));
}

UNIT_TEST(a_rotated_token_is_read_again)
{
    char path[] = "/tmp/op-token-XXXXXX";
    uint64_t now = 1000 * BEARER_MAX_AGE_NS;
    int fd = mkstemp(path);
    struct bearer b;
    const char *t;

    assert_true(fd >= 0);
    fd_close(&fd);
    assert_int_equal(bearer_init(&b, NULL, path), 0);
    assert_int_equal(fd_write_file(path, "one\n", 4, 0600, NULL), 0);
    assert_int_equal(bearer_get(&b, now, &t, NULL), 0);
    assert_string_equal(t, "one");
    assert_int_equal(fd_write_file(path, "two\n", 4, 0600, NULL), 0);
    assert_int_equal(bearer_get(&b, now + BEARER_MAX_AGE_NS / 2, &t, NULL), 0);
    assert_string_equal(t, "one");
    bearer_stale(&b); /* 401 */
    assert_int_equal(bearer_get(&b, now + BEARER_MAX_AGE_NS / 2, &t, NULL), 0);
    assert_string_equal(t, "two");
    assert_int_equal(fd_write_file(path, "three\n", 6, 0600, NULL), 0);
    assert_int_equal(bearer_get(&b, now + 2 * BEARER_MAX_AGE_NS, &t, NULL), 0);
    assert_string_equal(t, "three");
    (void)unlink(path); /* the old one will do for a while */
    assert_int_equal(bearer_get(&b, now + 4 * BEARER_MAX_AGE_NS, &t, NULL), 0);
    assert_string_equal(t, "three");
    bearer_release(&b);
    assert_int_equal(bearer_init(&b, NULL, path), 0);
    assert_true(bearer_get(&b, now, &t, NULL) < 0);
    bearer_release(&b);
}

UNIT_TEST(the_token_is_used_if_its_file_cannot_be_read)
{
    char path[] = "/tmp/op-token-XXXXXX", text[512];
    uint64_t now = 1000 * BEARER_MAX_AGE_NS;
    struct kube_config c;
    int fd = mkstemp(path);
    struct bearer b;
    const char *t;

    assert_true(fd >= 0);
    fd_close(&fd);
    (void)unlink(path);
    (void)snprintf(text, sizeof(text),
                   HEAD CLUSTER "users: [{name: u, user: {tokenFile: %s, token: t}}]\n",
                   path);
    assert_int_equal(config_parse(text, &c, NULL), 0);
    assert_int_equal(bearer_init(&b, c.token, c.token_file), 0);
    assert_int_equal(bearer_get(&b, now, &t, NULL), 0);
    assert_string_equal(t, "t");
    assert_int_equal(fd_write_file(path, "file\n", 5, 0600, NULL), 0);
    assert_int_equal(bearer_get(&b, now, &t, NULL), 0);
    assert_string_equal(t, "file");
    (void)unlink(path);
    bearer_release(&b);
    kube_config_release(&c);
}

UNIT_MAIN(NULL, NULL)
