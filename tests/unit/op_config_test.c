/* SPDX-License-Identifier: Apache-2.0 */
/* kubeconfig in its forms, the pod's service account, and the bearer token's rotation.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

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
#define CLUSTER "clusters: [{name: k, cluster: {server: 'https://h:6443'}}]\n"

static int parse(const char *text, struct kube_config *ret, struct err *err)
{
    return kube_config_parse(text, strlen(text), "/nowhere", ret, err);
}

static void certificates_inline(void **state)
{
    struct kube_config c;

    (void)state;
    assert_int_equal(
        parse(HEAD "clusters: [{name: k, cluster: {server: 'https://h:6443//', "
                   "certificate-authority-data: Q0E=, tls-server-name: kubernetes, "
                   "proxy-url: 'http://p:3128'}}]\n"
                   "users: [{name: u, user: {client-certificate-data: Q0VSVA==, "
                   "client-key-data: S0VZ}}]\n",
              &c, NULL),
        0);
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

static void json_is_yaml_too(void **state)
{
    struct kube_config c;

    (void)state;
    assert_int_equal(
        parse("{\"current-context\": \"c\", \"contexts\": [{\"name\": \"c\", "
              "\"context\": {\"cluster\": \"k\", \"namespace\": \"mine\"}}], "
              "\"clusters\": [{\"name\": \"k\", \"cluster\": {\"server\": "
              "\"http://127.0.0.1:8001\"}}]}",
              &c, NULL),
        0);
    assert_string_equal(c.ns, "mine");
    assert_string_equal(c.server, "http://127.0.0.1:8001");
    kube_config_release(&c);
}

static void files_are_found_beside_the_kubeconfig(void **state)
{
    char dir[] = "/tmp/op-config-XXXXXX", path[64];
    struct kube_config c;
    struct err e = ERR_INIT;

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/ca.crt", dir);
    assert_int_equal(fd_write_file(path, "PEM", 3, 0600, NULL), 0);
    (void)snprintf(path, sizeof(path), "%s/config", dir);
    assert_int_equal(
        fd_write_file(
            path,
            HEAD "clusters: [{name: k, cluster: {server: 'https://h', "
                 "certificate-authority: ca.crt}}]\n"
                 "users: [{name: u, user: {tokenFile: t, token: ignored}}]\n",
            sizeof(HEAD) - 1
                + strlen("clusters: [{name: k, cluster: {server: 'https://h', "
                         "certificate-authority: ca.crt}}]\n"
                         "users: [{name: u, user: {tokenFile: t, token: "
                         "ignored}}]\n"),
            0600, NULL),
        0);
    if (kube_config_load(NULL, path, "/home", &c, &e) < 0)
        fail_msg("%s", e.text);
    assert_string_equal(c.ca_pem, "PEM");
    assert_null(c.token);
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

static void what_we_cannot_do_is_refused_with_a_sentence(void **state)
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
        {HEAD "clusters: [{name: k, cluster: {}}]\nusers: [{name: u, user: {}}]\n",
         "no server"},
        {HEAD "clusters: [{name: k, cluster: {server: 5}}]\nusers: [{name: u}]\n",
         "server: must be a string, is an integer"},
        {HEAD "clusters: [{name: k, cluster: {server: 'http://h:80'}}]\nusers: [{name: "
              "u}]\n",
         "must begin with https://"},
        {HEAD "clusters: [{name: k, cluster: {server: 'http://127.0.0.1.evil.org'}}]\n"
              "users: [{name: u}]\n",
         "must begin with https://"},
        {HEAD "clusters: [{name: k, cluster: {server: 'https://h', "
              "insecure-skip-tls-verify: true}}]\nusers: [{name: u}]\n",
         "insecure-skip-tls-verify is not supported"},
        {HEAD CLUSTER "users: [{name: u, user: {exec: {command: aws}}}]\n",
         "user.exec is not supported"},
        {HEAD CLUSTER "users: [{name: u, user: {username: a, password: b}}]\n",
         "user.username is not supported"},
        {HEAD CLUSTER "users: [{name: u, user: {client-certificate-data: Q0E=}}]\n",
         "client-key is missing"},
        {HEAD CLUSTER "users: [{name: u, user: {client-certificate-data: '%%'}}]\n",
         "client-certificate-data: is not base64"},
        {HEAD CLUSTER "users: [{name: u, user: {token: \"a\\nX-Evil: b\"}}]\n",
         "token: must be one line"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct err e = ERR_INIT;
        struct kube_config c;

        assert_true(parse(t[i].text, &c, &e) < 0);
        if (!strstr(e.text, t[i].says))
            fail_msg("case %zu says \"%s\", not \"%s\"", i, e.text, t[i].says);
    }
}

static void a_list_of_files_is_refused(void **state)
{
    struct err e = ERR_INIT;
    struct kube_config c;

    (void)state;
    assert_int_equal(kube_config_load(NULL, "/a:/b", NULL, &c, &e), -EINVAL);
    assert_non_null(strstr(e.text, "is a list"));
}

static int parse_once(void *arg)
{
    struct kube_config c;
    int rc = parse(HEAD "clusters: [{name: k, cluster: {server: 'https://h', "
                        "certificate-authority-data: Q0E=}}]\n"
                        "users: [{name: u, user: {token: t}}]\n",
                   &c, NULL);

    (void)arg;
    if (rc == 0)
        kube_config_release(&c);
    return rc;
}

static void without_memory_it_says_so(void **state)
{
    (void)state;
    torture(parse_once, NULL);
}

static void a_pod_finds_its_server(void **state)
{
    struct kube_config c;
    struct err e = ERR_INIT;

    (void)state;
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

static void a_rotated_token_is_read_again(void **state)
{
    char path[] = "/tmp/op-token-XXXXXX";
    uint64_t now = 1000 * BEARER_MAX_AGE_NS;
    int fd = mkstemp(path);
    struct bearer b;
    const char *t;

    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(certificates_inline),
        cmocka_unit_test(json_is_yaml_too),
        cmocka_unit_test(files_are_found_beside_the_kubeconfig),
        cmocka_unit_test(what_we_cannot_do_is_refused_with_a_sentence),
        cmocka_unit_test(a_list_of_files_is_refused),
        cmocka_unit_test(without_memory_it_says_so),
        cmocka_unit_test(a_pod_finds_its_server),
        cmocka_unit_test(a_rotated_token_is_read_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
