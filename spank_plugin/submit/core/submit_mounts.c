/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes. Programs of Slurm see the node's files: a hostPath at its own path needs
 * nothing, elsewhere it needs a container. No other volume has a counterpart. */
#include "spank_plugin/submit/core/submit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The source of a volume: its member that is not its name. */
static const char *volume_kind(const struct node *volume)
{
    for (const struct node *n = volume ? volume->first : NULL; n; n = n->next) {
        if (strcmp(n->key, "name") != 0)
            return n->key;
    }
    return volume ? "emptyDir" : "no such volume";
}

static size_t path_length(const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    return n;
}

static bool is_same_path(const char *a, const char *b)
{
    return path_length(a) == path_length(b) && memcmp(a, b, path_length(a)) == 0;
}

/* pyxis separates by commas and colons. */
static bool is_mountable(struct submit *s, const char *path, const char *text)
{
    bool is_good = *text == '/' && !strpbrk(text, ",:\n\t");

    if (!is_good)
        strbuf_printf(s->problems,
                      "%s: must be an absolute path without comma, colon, tab and "
                      "newline\n",
                      path);
    return is_good && submit_check_word(s, path, text);
}

static void mount_host(struct submit *s,
                       const char *path,
                       const struct node *mount,
                       const char *host,
                       struct strbuf *ret)
{
    const char *to = node_str(mount, "mountPath"), *sub = node_str(mount, "subPath");
    const char *from =
        arena_printf(s->b->arena, "%s%s%s", host, sub ? "/" : "", sub ? sub : "");

    if (!from || !to) {
        if (!to)
            strbuf_printf(s->problems, "%s.mountPath: missing\n", path);
        else
            s->b->status = -ENOMEM;
        return;
    }
    if (s->uses_container) {
        if (is_mountable(s, path, from) && is_mountable(s, path, to))
            strbuf_printf(ret, "%s%s:%s%s", ret->n ? "," : "", from, to,
                          node_bool(mount, "readOnly", false) ? ":ro" : "");
    } else if (!is_same_path(from, to)) {
        strbuf_printf(s->notes,
                      "%s: the nodes have these files at %s, and without --container "
                      "not at %s\n",
                      path, from, to);
    }
}

static void
read_mount(struct submit *s, const struct node *mount, size_t i, struct strbuf *ret)
{
    const char *name = node_str(mount, "name"), *at = node_str(mount, "mountPath");
    const struct node *volume =
        name ? node_with(node_get(s->pod, "volumes"), "name", name) : NULL;
    const char *kind = volume_kind(volume), *host = node_str(volume, "hostPath.path");
    char path[160];

    (void)snprintf(path, sizeof(path), SUBMIT_FIRST ".volumeMounts[%zu]", i);
    at = at ? at : "its path";
    if (host && !node_get(mount, "subPathExpr"))
        mount_host(s, path, mount, host, ret);
    else if (is_same_path(at, "/dev/shm"))
        strbuf_printf(s->notes, "%s: has no counterpart: /dev/shm is the node's\n",
                      path);
    else
        strbuf_printf(
            s->notes,
            "%s: %s has no counterpart: the nodes must have the files at %s\n", path,
            kind, at);
}

void submit_read_mounts(struct submit *s, struct strbuf *ret)
{
    const struct node *list = node_get(s->container, "volumeMounts");
    const struct node *volumes = node_get(s->pod, "volumes");
    size_t i = 0;

    for (const struct node *m = list ? list->first : NULL; m; m = m->next)
        read_mount(s, m, i++, ret);
    i = 0;
    for (const struct node *v = volumes ? volumes->first : NULL; v; v = v->next, i++) {
        const char *name = node_str(v, "name");

        if (!name || !node_with(list, "name", name))
            strbuf_printf(s->notes,
                          SUBMIT_POD ".volumes[%zu]: has no counterpart: the first "
                                     "container does not mount it\n",
                          i);
    }
}
