/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU backend's blob of another rank. The texts of one that is accepted can be shown
 * and used as names; memory is shared only with a rank that wants it. */
#include <errno.h>

#include "runtime/backend/cpu/peers.h"
#include "tests/fuzz/fuzz.h"

static void text_check(const char *s, size_t size)
{
    size_t n = strnlen(s, size);

    MUST(n < size);
    for (size_t i = 0; i < n; i++)
        MUST(s[i] > ' ' && s[i] <= '~');
}

FUZZ_TARGET(peer)
{
    struct peer a, b;
    struct err err = ERR_INIT;
    int rc = peer_parse(data, (uint32_t)n, 5, &a, &err);

    if (rc) {
        MUST(rc == -EPROTO && strstr(err.text, "rank 5"));
        return 0;
    }
    MUST(n == sizeof(a) && memcmp(&a, data, n) == 0);
    text_check(a.host, sizeof(a.host));
    text_check(a.sock, sizeof(a.sock));
    text_check(a.addr, sizeof(a.addr));
    MUST((a.port > 0) == (a.addr[0] != '\0') && a.wants_shm <= 1);
    b = a;
    MUST(peer_same_process(&a, &b));
    MUST(peer_may_share(&a, &b) == (a.wants_shm && a.sock[0]));
    b.host_key[0] ^= 1;
    MUST(!peer_may_share(&a, &b));
    return 0;
}
