/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank sends to all others before they connect: the hello of its control channel
 * and the blob of its backend. What is accepted, rendered is the same. */
#include <errno.h>

#include "runtime/world/description.h"
#include "runtime/base/mem.h"
#include "runtime/control/address.h"
#include "tests/fuzz/fuzz.h"

static void address_check(const uint8_t *p, size_t n)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct control_address a;
    struct err err = ERR_INIT;
    int rc = address_read(p, n, 5, &a, &err);

    if (rc) {
        MUST(rc == -EPROTO && strstr(err.text, "rank 5"));
        return;
    }
    MUST((a.port > 0) == (a.addr[0] != '\0'));
    MUST(!strpbrk(a.addr, " \n\x1b") && !strpbrk(a.unix_name, " \n\x1b"));
    strbuf_init(&b, 1024);
    address_write(&a, &b);
    MUST(strbuf_status(&b) == 0 && b.n == n && memcmp(b.p, p, n) == 0);
}

FUZZ_TARGET(hello)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct description d;
    struct err err = ERR_INIT;
    int rc = description_read(data, n, 5, &d, &err);

    address_check(data, n);
    if (rc) {
        MUST(rc == -EPROTO && strstr(err.text, "rank 5"));
        return 0;
    }
    MUST(2 + d.n_hello + d.n_blob == n);
    strbuf_init(&b, n + 1);
    description_write(&d, &b);
    MUST(strbuf_status(&b) == 0 && b.n == n && memcmp(b.p, data, n) == 0);
    address_check(d.hello, d.n_hello);
    return 0;
}
