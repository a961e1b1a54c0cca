/* SPDX-License-Identifier: Apache-2.0 */
/* See bearer.h. A token is never logged, and is wiped before its memory is freed. */
#include "operator/kube/bearer.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

#define MAX_TOKEN_BYTES (64u << 10)

int bearer_init(struct bearer *b, const char *token, const char *path)
{
    *b = (struct bearer){.path = path};
    if (!token)
        return 0;
    b->token = mem_strdup(token);
    return b->token ? 0 : -ENOMEM;
}

void bearer_release(struct bearer *b)
{
    mem_free_secret(&b->token);
}

void bearer_stale(struct bearer *b)
{
    b->read_ns = 0;
}

int bearer_get(struct bearer *b, uint64_t now_ns, const char **ret, struct err *err)
{
    char *fresh;
    size_t n;
    int rc;

    if (b->path && (b->read_ns == 0 || now_ns - b->read_ns > BEARER_MAX_AGE_NS)) {
        rc = fd_read_file(b->path, MAX_TOKEN_BYTES, &fresh, &n, err);
        if (rc < 0 && !b->token)
            return err_prefix(err, "service account token");
        if (rc == 0) {
            mem_free_secret(&b->token);
            fresh[strcspn(fresh, " \r\n")] = '\0';
            b->token = fresh;
            b->read_ns = now_ns;
        }
    }
    *ret = b->token;
    return 0;
}
