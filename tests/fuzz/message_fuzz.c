/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages as a peer might send them. The first byte selects the size of the
 * world; a valid message is negotiated and, rendered and parsed again, is the same. */
#include "runtime/base/mem.h"
#include "runtime/core/member.h"
#include "runtime/core/negotiate.h"
#include "tests/fuzz/fuzz.h"

/* Rendered and parsed again, it is the same. */
static void check_request(const struct tensor_request *q)
{
    CLEANUP(strbuf_release) struct strbuf again = {0};
    struct message_reader r;
    struct tensor_request a = *q, b;
    struct up back;

    strbuf_init(&again, MESSAGE_MAX_BYTES);
    message_begin_up(&again, 0);
    message_put_request(&again, q);
    MUST(message_open(&r, again.p, again.n, NULL) == 0);
    MUST(message_next_up(&r, &back, NULL) == 1 && back.kind == UP_REQUEST);
    b = back.req;
    MUST(a.n_set == b.n_set
         && (a.n_set == 0 || memcmp(a.set, b.set, (size_t)a.n_set * 4) == 0));
    a.set = b.set = NULL;
    MUST(memcmp(&a, &b, sizeof(a)) == 0);
}

/* The message as each rank's in turn: the table stays consistent. */
static void message_parse_up(const uint8_t *data, size_t n, uint32_t n_ranks)
{
    struct negotiate_config cfg = {.n_ranks = n_ranks,
                                   .fusion_bytes = 4096,
                                   .cache_capacity = 4,
                                   .may_freeze = true};
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct message_reader in;
    struct negotiate *t;
    struct up u;

    MUST(message_open(&in, data, n, NULL) == 0);
    while (message_next_up(&in, &u, NULL) == 1)
        if (u.kind == UP_REQUEST)
            check_request(&u.req);
    MUST(negotiate_new(&cfg, &t) == 0);
    strbuf_init(&out, MESSAGE_MAX_BYTES);
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        MUST(message_open(&in, data, n, NULL) == 0);
        if (negotiate_receive(t, rank, &in, 1, NULL) < 0)
            break; /* refused */
        while (negotiate_has_news(t)) {
            strbuf_clear(&out);
            MUST(negotiate_write(t, &out) == 0);
        }
    }
    negotiate_free(t);
}

/* What a rank makes of it, all the way. */
static void message_parse_down(const uint8_t *data, size_t n, uint32_t n_ranks)
{
    struct member_act act;
    struct member *m;

    MUST(member_new(0, n_ranks, &m) == 0);
    if (member_receive(m, data, n, NULL) == 0)
        while (member_next(m, true, &act, NULL) == 0 && act.kind != MEMBER_NOTHING
               && act.kind != MEMBER_AGREE)
            if (act.kind == MEMBER_SET)
                MUST(!request_set_has(act.items[0].req, 0));
    member_free(m);
}

FUZZ_TARGET(message)
{
    struct message_reader in;
    struct down d;
    uint64_t counts[8];
    uint32_t n_ranks;

    if (n == 0)
        return 0;
    n_ranks = 1 + data[0] % ARRAY_LEN(counts);
    if (message_open(&in, data + 1, n - 1, NULL) < 0)
        return 0;
    if (in.kind == MESSAGE_UP) {
        message_parse_up(data + 1, n - 1, n_ranks);
        return 0;
    }
    while (message_next_down(&in, counts, n_ranks, &d, NULL) == 1)
        MUST(strlen(d.text) < sizeof(d.text) && d.n_counts <= n_ranks);
    message_parse_down(data + 1, n - 1, n_ranks);
    return 0;
}
