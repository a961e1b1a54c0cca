/* SPDX-License-Identifier: Apache-2.0 */
/* Values out of an environment that is a function. An empty value counts as absent:
 * Kubernetes and shells set empty ones unintentionally. All failures are -EINVAL with a
 * message in r->err. Pure. */
#ifndef RUNTIME_CONTRACT_ENV_READER_H
#define RUNTIME_CONTRACT_ENV_READER_H

#include "runtime/contract/contract.h"

struct env_reader {
    getenv_fn get;
    void *arg;
    struct err *err;
};

const char *env_look(const struct env_reader *r, const char *name); /* or NULL */
/* An absent variable leaves *ret as it is (the default). */
int env_u32(const struct env_reader *r,
            const char *name,
            uint32_t min,
            uint32_t max,
            uint32_t *ret);
/* An absent one is an error: "NAME is unset, `why`". */
int env_need_u32(const struct env_reader *r,
                 const char *name,
                 uint32_t min,
                 uint32_t max,
                 uint32_t *ret,
                 const char *why);
int env_port(const struct env_reader *r, const char *name, uint16_t *ret);
/* An absent one gives or_else. */
int env_text(const struct env_reader *r,
             const char *name,
             const char *or_else,
             char *ret,
             size_t size_bytes);

#endif
