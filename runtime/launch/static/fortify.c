/* SPDX-License-Identifier: Apache-2.0 */
/* Debian's libsodium.a is built with _FORTIFY_SOURCE and calls this function of glibc,
 * which the static programs do not have: they are linked with musl. */
#include <stddef.h>
#include <stdlib.h>

#include "runtime/base/mem.h"

void wipe_checked(void *p,
                  size_t n_bytes,
                  size_t room_bytes) __asm__("__explicit_bzero_chk");

void wipe_checked(void *p, size_t n_bytes, size_t room_bytes)
{
    if (n_bytes > room_bytes)
        abort();
    mem_wipe(p, n_bytes);
}
