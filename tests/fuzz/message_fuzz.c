/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages as a peer might send them. The first byte chooses the size of the
 * world; what can be read is negotiated and, written again, must read back the same. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/core/negotiate.h"
#include "tests/fuzz/fuzz.h"

static void require(int is_true)
{
    if (!is_true)
        abort();
}

static void requests(struct message_reader *in, uint32_t n_ranks)
{
    CLEANUP(strbuf_release) struct strbuf out = {0}, again = {0};
    struct negotiate *n;
    struct request q, back;
    uint32_t rank = 0;
    size_t k;

    require(negotiate_new(n_ranks, &n) == 0);
    strbuf_init(&out, MESSAGE_MAX_BYTES);
    while (message_next_request(in, &q, NULL) == 1) {
        struct message_reader r;

        strbuf_init(&again, MESSAGE_MAX_BYTES);
        message_begin(&again, MESSAGE_REQUESTS);
        message_put_request(&again, &q);
        require(message_open(&r, again.p, again.n, NULL) == 0);
        require(message_next_request(&r, &back, NULL) == 1);
        require(memcmp(&q, &back, sizeof(q)) == 0);
        strbuf_release(&again);
        (void)negotiate_add(n, rank++ % n_ranks, &q, 1, NULL); /* may be refused */
    }
    while (negotiate_ready(n) > 0) {
        strbuf_clear(&out);
        require(negotiate_write(n, 4096, &out, &k) == 0 && k > 0);
    }
    strbuf_release(&out);
    negotiate_free(n);
}

FUZZ_TARGET(message)
{
    struct message_reader in;
    struct response resp;
    uint64_t counts[8];
    uint32_t n_ranks;

    if (n == 0)
        return 0;
    n_ranks = 1 + data[0] % ARRAY_LEN(counts);
    if (message_open(&in, data + 1, n - 1, NULL) < 0)
        return 0;
    if (in.kind == MESSAGE_REQUESTS) {
        requests(&in, n_ranks);
        return 0;
    }
    while (message_next_response(&in, counts, n_ranks, &resp, NULL) == 1)
        require(strlen(resp.name) < sizeof(resp.name)
                && strlen(resp.text) < sizeof(resp.text)
                && (resp.n_counts == 0 || resp.n_counts == n_ranks));
    return 0;
}
