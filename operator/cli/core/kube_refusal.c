/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of kubectl -> one sentence: what is wrong, and what helps.  */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/cli/core/job_view.h"

/* The part of a line after the mark; NULL: no line has it. */
static const char *text_after(const char *text, const char *mark, size_t *ret_n)
{
    const char *p = strstr(text, mark);

    if (!p)
        return NULL;
    p += strlen(mark);
    *ret_n = strcspn(p, "\n");
    return p;
}

/* The last line that has a text; without the pointer to the help. */
static const char *last_line(const char *text, size_t *ret_n)
{
    const char *best = text;

    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "\n");

        if (n > 0 && strncmp(p, "See 'kubectl", 12) != 0)
            best = p;
        p += n + (p[n] == '\n');
    }
    *ret_n = strcspn(best, "\n");
    return best;
}

static int refuse_forbidden(const char *p, size_t n, struct err *err)
{
    static const struct {
        const char *resource, *help;
    } rows[] = {
        {"\"pods/portforward\"",
         "Role hvd-page-user of manifests/overlays/page has it"},
        {"\"leases\"", "Role hvd-page-user of manifests/overlays/page has it"},
        {"\"serviceaccounts/token\"", "--token-file takes a token of your own"},
        {"",
         "with manifests/users, Kubernetes' role view suffices to look, and edit to "
         "change"},
    };
    size_t i = 0;

    while (!strstr(p, rows[i].resource))
        i++;
    return err_set(err, -EACCES, "this user has no right: %.*s; %s", (int)n, p,
                   rows[i].help);
}

/* Subresources are refused in the middle of a line, by the client: 'error: upgrading
 * connection: pods "x" is forbidden: ...'. The line from its last but one ": " on. */
static const char *forbidden_part(const char *text, size_t *ret_n)
{
    const char *mark = strstr(text, " is forbidden: "), *p = mark;

    if (!mark)
        return NULL;
    while (p > text && p[-1] != '\n' && !(p[-1] == ' ' && p - 1 > text && p[-2] == ':'))
        p--;
    *ret_n = strcspn(p, "\n");
    return p;
}

int kube_refusal(const char *text, const char *what, struct err *err)
{
    size_t n = 0;
    const char *p = text_after(text, "Error from server (Forbidden): ", &n);

    if (!p)
        p = forbidden_part(text, &n);
    if (p)
        return refuse_forbidden(p, n, err);
    if (strstr(text, "the server doesn't have a resource type")
        || strstr(text, "no matches for kind")
        || strstr(text, "could not find the requested resource"))
        return err_set(err, -ENOTSUP,
                       "the cluster does not have this kind of object; install "
                       "manifests/crd to have HorovodJobs");
    p = text_after(text, "Error from server (NotFound): ", &n);
    if (p)
        return what ? err_set(err, -ENOENT, "%s: not found", what)
                    : err_set(err, -ENOENT, "%.*s", (int)n, p);
    p = last_line(text, &n);
    if (strstr(text, "was refused") || strstr(text, "Unable to connect to the server")
        || strstr(text, "no configuration has been provided"))
        return err_set(
            err, -ECONNREFUSED,
            "the API server cannot be reached: %.*s; kubectl config view shows "
            "which one is used",
            (int)n, p);
    if (strstr(text, "Unauthorized") || strstr(text, "must be logged in"))
        return err_set(
            err, -EACCES,
            "the API server does not accept the credentials of this context");
    if (n == 0)
        return err_set(err, -EIO, "kubectl failed without a message");
    if (strncmp(p, "error: ", 7) == 0)
        p += 7;
    else if (strncmp(p, "Error from server", 17) == 0 && strstr(p, ": "))
        p = strstr(p, ": ") + 2;
    return err_set(err, -EIO, "%.*s", (int)strcspn(p, "\n"), p);
}
