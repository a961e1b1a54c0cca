/* SPDX-License-Identifier: Apache-2.0 */
/* What a client of a trainer's status server needs of RFC 9112: a request line, header
 * fields, a body whose length is given. Called by metrics.c. */
#include "runtime/launch/core/post.h"

#include <string.h>
#include <strings.h>

struct post_text {
    const char *p;
    size_t n;
};

bool post_is_one(const char *p, size_t n)
{
    return n >= 5 && memcmp(p, "POST ", 5) == 0;
}

static enum post_state
post_refuse(struct post *post, const char *status, const char *why)
{
    post->status = status;
    post->why = why;
    return POST_REFUSED;
}

/* The next line, without its CR LF. */
static bool line_next(struct post_text *rest, struct post_text *ret)
{
    const char *end = rest->n > 0 ? memmem(rest->p, rest->n, "\r\n", 2) : NULL;

    if (!end)
        return false;
    *ret = (struct post_text){rest->p, (size_t)(end - rest->p)};
    rest->n -= ret->n + 2;
    rest->p = end + 2;
    return true;
}

/* "Name: value", without blanks around the value. */
static bool
line_is_field(struct post_text line, const char *name, struct post_text *ret)
{
    size_t n = strlen(name);

    if (line.n <= n || strncasecmp(line.p, name, n) != 0 || line.p[n] != ':')
        return false;
    *ret = (struct post_text){line.p + n + 1, line.n - n - 1};
    while (ret->n > 0 && (*ret->p == ' ' || *ret->p == '\t')) {
        ret->p++;
        ret->n--;
    }
    while (ret->n > 0 && (ret->p[ret->n - 1] == ' ' || ret->p[ret->n - 1] == '\t'))
        ret->n--;
    return true;
}

/* False: not a number. A number that is too large stays above POST_BODY_MAX. */
static bool length_read(struct post_text t, size_t *ret)
{
    size_t v = 0;

    for (size_t i = 0; i < t.n; i++) {
        if (t.p[i] < '0' || t.p[i] > '9')
            return false;
        if (v <= POST_BODY_MAX)
            v = v * 10 + (size_t)(t.p[i] - '0');
    }
    *ret = v;
    return t.n > 0;
}

static bool path_read(struct post_text line, struct post *ret)
{
    const char *end;

    if (!post_is_one(line.p, line.n))
        return false;
    line.p += 5;
    line.n -= 5;
    end = memchr(line.p, ' ', line.n);
    ret->path = line.p;
    ret->n_path = end ? (size_t)(end - line.p) : 0;
    return end && line.n - ret->n_path > 7 && memcmp(end, " HTTP/1.", 8) == 0;
}

static enum post_state
head_read(struct post_text head, struct post *ret, size_t *ret_n_body)
{
    struct post_text line, value;
    bool has_length = false;

    if (!line_next(&head, &line) || !path_read(line, ret))
        return post_refuse(ret, "400 Bad Request", "its first line is not HTTP/1.1");
    while (line_next(&head, &line)) {
        if (line_is_field(line, "Transfer-Encoding", &value))
            return post_refuse(ret, "411 Length Required",
                               "only a body with a Content-Length is read");
        if (line_is_field(line, "Content-Length", &value)) {
            if (has_length || !length_read(value, ret_n_body))
                return post_refuse(ret, "400 Bad Request",
                                   "Content-Length is not one number");
            has_length = true;
        }
        if (line_is_field(line, "Authorization", &value) && value.n > 7
            && strncasecmp(value.p, "Bearer ", 7) == 0) {
            ret->bearer = value.p + 7;
            ret->n_bearer = value.n - 7;
        }
    }
    return has_length ? POST_COMPLETE
                      : post_refuse(ret, "411 Length Required",
                                    "only a body with a Content-Length is read");
}

enum post_state post_read(const char *p, size_t n, struct post *ret)
{
    const size_t n_looked = n < POST_HEAD_MAX ? n : POST_HEAD_MAX;
    const char *end = n > 0 ? memmem(p, n_looked, "\r\n\r\n", 4) : NULL;
    struct post_text head;
    size_t n_body = 0;
    enum post_state state;

    *ret = (struct post){.path = p, .bearer = p, .body = p};
    if (!end && n < POST_HEAD_MAX)
        return POST_PARTIAL;
    if (!end)
        return post_refuse(ret, "431 Request Header Fields Too Large",
                           "its head has more than 4096 bytes");
    head = (struct post_text){p, (size_t)(end - p) + 2};
    state = head_read(head, ret, &n_body);
    if (state != POST_COMPLETE)
        return state;
    if (n_body > POST_BODY_MAX)
        return post_refuse(ret, "413 Content Too Large",
                           "its body has more than 16384 bytes");
    ret->body = end + 4;
    ret->n_body = n_body;
    return n - (size_t)(ret->body - p) >= n_body ? POST_COMPLETE : POST_PARTIAL;
}
