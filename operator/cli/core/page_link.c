/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's pod by the identity in the Lease (operator/elect.c: host name, '_', uuid),
 * the URL, and the lines of kubectl port-forward. */
#include "operator/cli/core/page_link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/cli/core/job_view.h"

#define FORWARDING "Forwarding from 127.0.0.1:"

static bool pod_is_ready(const struct node *pod)
{
    const struct node *list = node_at(pod, "status.conditions");
    const char *status = node_str(node_with(list, "type", "Ready"), "status");

    return status && strcmp(status, "True") == 0
           && !node_at(pod, "metadata.deletionTimestamp");
}

static const struct node *
pod_named(const struct node *items, const char *name, size_t n)
{
    for (const struct node *p = items ? items->first : NULL; p; p = p->next) {
        const char *s = node_str(p, "metadata.name");

        if (s && strlen(s) == n && memcmp(s, name, n) == 0)
            return p;
    }
    return NULL;
}

static uint32_t pod_page_port(const struct node *pod)
{
    const struct node *list = node_at(pod, "spec.containers");

    for (const struct node *c = list ? list->first : NULL; c; c = c->next) {
        const struct node *port = node_with(node_get(c, "ports"), "name", "page");

        if (port)
            return (uint32_t)node_int(port, "containerPort", 0);
    }
    return 0;
}

int page_choose(const struct node *pods,
                const char *holder,
                struct page_pod *ret,
                struct err *err)
{
    const struct node *items = node_get(pods, "items"), *pod = NULL;
    const char *end = holder ? strrchr(holder, '_') : NULL, *name;
    struct page_pod found = {0};

    if (!items || !items->first)
        return err_set(err, -ENOENT,
                       "no operator is there; --operator-namespace names another "
                       "namespace");
    if (end)
        pod = pod_named(items, holder, (size_t)(end - holder));
    found.is_leader = pod != NULL;
    for (const struct node *p = items->first; p && !pod; p = p->next)
        pod = pod_is_ready(p) ? p : NULL;
    if (!pod)
        return err_set(err, -ENOENT, "no operator leads, and no pod of it is ready");
    name = node_str(pod, "metadata.name");
    found.port = pod_page_port(pod);
    if (!name || strlen(name) >= sizeof(found.name) || found.port == 0)
        return err_set(
            err, -ENOENT,
            "the operator was started without --page; manifests/overlays/page "
            "and the chart's page.enabled set it");
    (void)snprintf(found.name, sizeof(found.name), "%s", name);
    *ret = found;
    return 0;
}

/* --- the URL ---------------------------------------------------------------------- */

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool page_is_token(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!is_alnum(s[i]) && (s[i] == '\0' || !strchr("-._~+/=", s[i])))
            return false;
    }
    return n > 0;
}

static void put_encoded(struct strbuf *out, const char *s, const char *kept)
{
    for (; *s; s++) {
        if (is_alnum(*s) || strchr(kept, *s))
            strbuf_putc(out, *s);
        else
            strbuf_printf(out, "%%%02X", (unsigned char)*s);
    }
}

void page_fragment(struct strbuf *out, const char *token, const char *route)
{
    strbuf_puts(out, "#token=");
    put_encoded(out, token, "-._~");
    if (!route)
        return;
    strbuf_puts(out, "&go=");
    put_encoded(out, route, "-._~/");
}

/* --- kubectl port-forward --------------------------------------------------------- */

uint32_t page_forwarded(const char *line)
{
    unsigned long port;

    if (strncmp(line, FORWARDING, strlen(FORWARDING)) != 0)
        return 0;
    port = strtoul(line + strlen(FORWARDING), NULL, 10);
    return port <= UINT16_MAX ? (uint32_t)port : 0;
}

int page_refusal(const char *text, uint32_t port, struct err *err)
{
    const char *p = strstr(text, "bind: ");

    if (!p || !strstr(text, "nable to listen on"))
        return kube_refusal(text, NULL, err);
    p += strlen("bind: ");
    return err_set(err, -EADDRINUSE, "port %u of this host cannot be used: %.*s", port,
                   (int)strcspn(p, "]\n"), p);
}
