/* SPDX-License-Identifier: Apache-2.0 */
/* ExecCredential -> struct exec_answer. The text is a secret: error messages name the
 * field, never its value. Called by creds.c. */
#include "operator/kube/exec_answer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/doc/json.h"
#include "runtime/base/mem.h"

#define ANSWER_ARENA (8u << 20)

void exec_answer_release(struct exec_answer *a)
{
    mem_free_secret(&a->token);
    mem_free_secret(&a->cert_pem);
    mem_free_secret(&a->key_pem);
}

/* --- time ------------------------------------------------------------------------- */

static bool read_number(const char **s, int digits, int min, int max, int *ret)
{
    int v = 0;

    for (int i = 0; i < digits; i++, (*s)++) {
        if (**s < '0' || **s > '9')
            return false;
        v = v * 10 + (**s - '0');
    }
    *ret = v;
    return v >= min && v <= max;
}

static bool read_sign(const char **s, char c)
{
    return *(*s)++ == c;
}

/* Days since 1970-01-01 of the Gregorian calendar; years from March on. */
static int64_t days_since_epoch(int y, int m, int d)
{
    int64_t year = m > 2 ? y : y - 1;
    int64_t day_of_year = (153 * (m > 2 ? m - 3 : m + 9) + 2) / 5 + d - 1;

    return year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719468;
}

static bool read_zone(const char *s, int64_t *ret_s)
{
    int h, m, east;

    if (strcmp(s, "Z") == 0) {
        *ret_s = 0;
        return true;
    }
    east = *s == '+' ? 1 : -1;
    if (*s != '+' && *s != '-')
        return false;
    s++;
    if (!read_number(&s, 2, 0, 23, &h) || !read_sign(&s, ':')
        || !read_number(&s, 2, 0, 59, &m) || *s)
        return false;
    *ret_s = east * (h * 3600 + m * 60);
    return true;
}

/* RFC 3339 with any offset; fractions are dropped. */
static bool read_time(const char *s, uint64_t *ret)
{
    int y, mo, d, h, mi, sec;
    int64_t offset, t;

    if (!read_number(&s, 4, 1970, 9999, &y) || !read_sign(&s, '-')
        || !read_number(&s, 2, 1, 12, &mo) || !read_sign(&s, '-')
        || !read_number(&s, 2, 1, 31, &d))
        return false;
    if ((*s != 'T' && *s != 't') || !*s++ || !read_number(&s, 2, 0, 23, &h)
        || !read_sign(&s, ':') || !read_number(&s, 2, 0, 59, &mi) || !read_sign(&s, ':')
        || !read_number(&s, 2, 0, 60, &sec))
        return false;
    if (*s == '.')
        s += 1 + strspn(s + 1, "0123456789");
    if (!read_zone(s, &offset))
        return false;
    t = days_since_epoch(y, mo, d) * 86400 + h * 3600 + mi * 60 + sec - offset;
    *ret = t > 0 ? (uint64_t)t : 1;
    return true;
}

/* --- the object ------------------------------------------------------------------- */

static int status_copy_text(const struct node *status,
                            const char *key,
                            char **ret,
                            struct err *err)
{
    const struct node *n = node_get(status, key);

    if (!n || n->type == NODE_NULL)
        return 0;
    if (n->type != NODE_STRING)
        return err_set(err, -EINVAL, "status.%s: must be a string", key);
    if (!*n->u.s)
        return 0;
    *ret = mem_strdup(n->u.s);
    return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static int check_head(const struct node *o, const char *api_version, struct err *err)
{
    const char *kind = node_str(o, "kind"), *version = node_str(o, "apiVersion");

    if (!kind || strcmp(kind, "ExecCredential") != 0)
        return err_set(err, -EINVAL, "kind: must be ExecCredential");
    if (!version || strcmp(version, api_version) != 0)
        return err_set(err, -EINVAL, "apiVersion: must be %s, as in the kubeconfig",
                       api_version);
    return 0;
}

static int
exec_read_status(const struct node *status, struct exec_answer *a, struct err *err)
{
    const char *expires = node_str(status, "expirationTimestamp");
    int rc = status_copy_text(status, "token", &a->token, err);

    if (rc == 0)
        rc = status_copy_text(status, "clientCertificateData", &a->cert_pem, err);
    if (rc == 0)
        rc = status_copy_text(status, "clientKeyData", &a->key_pem, err);
    if (rc < 0)
        return rc;
    if (a->token && strpbrk(a->token, "\r\n"))
        return err_set(err, -EINVAL, "status.token: must be one line");
    if (!a->cert_pem != !a->key_pem)
        return err_set(err, -EINVAL,
                       "status.clientCertificateData and status.clientKeyData belong "
                       "together");
    if (!a->token && !a->cert_pem)
        return err_set(err, -EINVAL,
                       "status: has neither token nor clientCertificateData");
    if (expires && *expires && !read_time(expires, &a->expires_wall_s))
        return err_set(err, -EINVAL,
                       "status.expirationTimestamp: must be a time as in RFC 3339");
    return 0;
}

int exec_answer_read(const char *text,
                     size_t n,
                     const char *api_version,
                     struct exec_answer *ret,
                     struct err *err)
{
    struct exec_answer a = {0};
    struct err syntax = ERR_INIT;
    struct arena arena;
    struct node *o;
    int rc;

    arena_init(&arena, ANSWER_ARENA);
    rc = json_read(&arena, text, n, &o, &syntax);
    if (rc < 0) /* the reader's error message quotes the text */
        rc = err_set(err, rc, rc == -ENOMEM ? "out of memory" : "is not a JSON object");
    if (rc == 0)
        rc = check_head(o, api_version, err);
    if (rc == 0)
        rc = exec_read_status(node_get(o, "status"), &a, err);
    arena_wipe(&arena);
    arena_release(&arena);
    if (rc < 0)
        exec_answer_release(&a);
    else
        *ret = a;
    return rc;
}
