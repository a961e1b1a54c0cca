/* SPDX-License-Identifier: Apache-2.0 */
/* The readers of the contract's variables; every error message names the variable. */
#include "runtime/contract/env_reader.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/parse.h"

const char *env_look(const struct env_reader *r, const char *name)
{
    const char *s = r->get(r->arg, name);

    return s && *s ? s : NULL;
}

int env_u32(const struct env_reader *r,
            const char *name,
            uint32_t min,
            uint32_t max,
            uint32_t *ret)
{
    const char *s = env_look(r, name);

    if (!s)
        return 0;
    return parse_u32(name, s, min, max, ret, r->err) ? err_recode(r->err, -EINVAL) : 0;
}

int env_need_u32(const struct env_reader *r,
                 const char *name,
                 uint32_t min,
                 uint32_t max,
                 uint32_t *ret,
                 const char *why)
{
    if (!env_look(r, name))
        return err_set(r->err, -EINVAL, "%s is unset, %s", name, why);
    return env_u32(r, name, min, max, ret);
}

int env_port(const struct env_reader *r, const char *name, uint16_t *ret)
{
    uint32_t port = *ret;
    const char *s = env_look(r, name);

    if (s && parse_u32(name, s, 1, 65535, &port, r->err))
        return err_recode(r->err, -EINVAL);
    *ret = (uint16_t)port;
    return 0;
}

int env_text(const struct env_reader *r,
             const char *name,
             const char *or_else,
             char *ret,
             size_t size_bytes)
{
    const char *s = env_look(r, name);

    if (!s)
        s = or_else;
    size_t n = strlen(s);
    if (n >= size_bytes)
        return err_set(r->err, -EINVAL, "%s has %zu bytes, allowed are %zu", name, n,
                       size_bytes - 1);
    memcpy(ret, s, n + 1);
    return 0;
}
