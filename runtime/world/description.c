/* SPDX-License-Identifier: Apache-2.0 */
/* See description.h. Called by world.c. */
#include "runtime/world/description.h"

#include <errno.h>

void description_write(const struct description *d, struct strbuf *out)
{
    bytes_put(out, d->n_hello, 2);
    strbuf_add(out, d->hello, d->n_hello);
    strbuf_add(out, d->blob, d->n_blob);
}

int description_read(
    const uint8_t *p, size_t n, uint32_t rank, struct description *ret, struct err *err)
{
    struct bytes_reader in = {.p = p, .left = n};
    const uint8_t *hello;
    uint64_t n_hello;

    if (!bytes_get(&in, 2, &n_hello) || !bytes_get_raw(&in, n_hello, &hello))
        return err_set(err, -EPROTO, "rank %u sent a malformed description", rank);
    *ret = (struct description){
        .hello = hello, .n_hello = n_hello, .blob = in.p, .n_blob = in.left};
    return 0;
}
