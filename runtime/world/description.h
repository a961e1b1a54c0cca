/* SPDX-License-Identifier: Apache-2.0 */
/* What each rank sends to all others in the second round of the rendezvous: the hello
 * of its control channel and the blob of its backend. Pure. */
#ifndef RUNTIME_WORLD_DESCRIPTION_H
#define RUNTIME_WORLD_DESCRIPTION_H

#include "runtime/wire/bytes.h"

struct description { /* points into the bytes that were read */
    const uint8_t *hello, *blob;
    size_t n_hello, n_blob;
};
/* n_hello:2 hello blob */
void description_write(const struct description *d, struct strbuf *out);
/* -EPROTO with the rank in the error message. */
int description_read(const uint8_t *p,
                     size_t n,
                     uint32_t rank,
                     struct description *ret,
                     struct err *err);

#endif
