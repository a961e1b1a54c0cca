/* SPDX-License-Identifier: Apache-2.0 */
/* TLS and proxy of one request.
 *
 * At least TLS 1.2. Peer and host name are verified unless the kubeconfig has
 * insecure-skip-tls-verify. A CA file is read for each new connection, because
 * libcurl's cache would keep an old CA for a day. A client certificate is passed as
 * text, which is part of libcurl's key of a connection. A connection with a former
 * certificate is therefore not reused, nor is its TLS session, and it is closed two
 * minutes after its last use. The key is not copied: it stays valid until the easy
 * handle is reset.
 *
 * proxy-url of the kubeconfig applies to everything. Without it $HTTPS_PROXY and
 * $NO_PROXY apply (libcurl reads them), but never for this machine itself, as in other
 * Kubernetes programs. A SOCKS proxy resolves names, not this machine. */
#include "operator/kube/http_tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <curl/curl.h>

#include "runtime/base/mem.h"

static CURLcode set_blob(CURL *e, CURLoption option, const char *pem, unsigned flags)
{
    struct curl_blob blob = {.data = (void *)(uintptr_t)pem, .flags = flags};

    if (!pem)
        return CURLE_OK;
    blob.len = strlen(pem);
    return curl_easy_setopt(e, option, &blob);
}

static CURLcode set_certificate(CURL *e, const struct identity *who)
{
    CURLcode rc;

    if (!who->cert_pem)
        return CURLE_OK;
    curl_easy_setopt(e, CURLOPT_SSLCERTTYPE, "PEM");
    curl_easy_setopt(e, CURLOPT_SSLKEYTYPE, "PEM");
    rc = set_blob(e, CURLOPT_SSLCERT_BLOB, who->cert_pem, CURL_BLOB_COPY);
    return rc == CURLE_OK
               ? set_blob(e, CURLOPT_SSLKEY_BLOB, who->key_pem, CURL_BLOB_NOCOPY)
               : rc;
}

static CURLcode
set_tls(CURL *e, const struct kube_config *k, const struct identity *who)
{
    CURLcode rc =
        curl_easy_setopt(e, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);

    if (rc == CURLE_OK)
        rc = curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, k->is_insecure ? 0L : 1L);
    if (rc == CURLE_OK)
        rc = curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, k->is_insecure ? 0L : 2L);
    if (rc == CURLE_OK && !k->ca_file)
        rc = set_blob(e, CURLOPT_CAINFO_BLOB, k->ca_pem, CURL_BLOB_COPY);
    if (rc == CURLE_OK && k->ca_file)
        rc = curl_easy_setopt(e, CURLOPT_CAINFO, k->ca_file);
    if (rc == CURLE_OK && k->ca_file)
        rc = curl_easy_setopt(e, CURLOPT_CA_CACHE_TIMEOUT, 0L);
    return rc == CURLE_OK ? set_certificate(e, who) : rc;
}

static bool is_this_machine(const char *server)
{
    const char *url = strstr(server, "://");
    struct in_addr a;
    char host[64];
    size_t n;

    url = url ? url + 3 : server;
    n = *url == '[' ? strcspn(url, "]") + 1 : strcspn(url, ":/");
    if (n >= sizeof(host))
        return false;
    (void)snprintf(host, sizeof(host), "%.*s", (int)n, url);
    return strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0
           || (inet_pton(AF_INET, host, &a) == 1 && ntohl(a.s_addr) >> 24 == 127);
}

static CURLcode set_proxy(CURL *e, const struct kube_config *k)
{
    static const char socks5[] = "socks5://";
    char url[2048];
    CURLcode rc;

    if (!k->proxy_url)
        return is_this_machine(k->server) ? curl_easy_setopt(e, CURLOPT_PROXY, "")
                                          : CURLE_OK;
    if (strncmp(k->proxy_url, socks5, sizeof(socks5) - 1) == 0)
        (void)snprintf(url, sizeof(url), "socks5h://%s",
                       k->proxy_url + sizeof(socks5) - 1);
    else
        (void)snprintf(url, sizeof(url), "%s", k->proxy_url);
    rc = curl_easy_setopt(e, CURLOPT_PROXY, url);
    explicit_bzero(url, sizeof(url)); /* may have a password */
    return rc == CURLE_OK ? curl_easy_setopt(e, CURLOPT_NOPROXY, "") : rc;
}

int http_secure(void *easy,
                const struct kube_config *config,
                const struct identity *who,
                struct err *err)
{
    CURLcode rc = set_tls(easy, config, who);

    if (rc == CURLE_OK)
        rc = set_proxy(easy, config);
    if (rc != CURLE_OK)
        return err_set(err, rc == CURLE_OUT_OF_MEMORY ? -ENOMEM : -EINVAL,
                       "%s: TLS or proxy: %s", config->server, curl_easy_strerror(rc));
    return 0;
}
