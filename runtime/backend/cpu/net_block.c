/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of a data connection. See net_block.h for the bytes.
 *
 * The header stops every stream that lost, repeated or gained bytes, and every block of
 * another batch, connection or direction. The checksum finds damaged data; anyone who
 * can change the data can also change the checksum. The MAC cannot be made without the
 * job token; the sequence number and the keys, which differ by connection and direction,
 * make every block valid in one place only.
 *
 * Data is checked in pieces as it arrives, and is in the cache then. Padding is not
 * covered: it has no meaning.
 *
 * Called by net.c and agree.c. No input or output here. */
#include "runtime/backend/cpu/net_block.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/wire/bytes.h"

enum {
    AT_BYTES = 0,
    AT_CRC = 4,
    AT_SEQUENCE = 8,
    AT_NUMBER = 16,
    AT_KIND = 20,
    AT_FROM = 24,
    AT_TO = 28,
    AT_MAC = 32
};

void block_stream_init(struct block_stream *s,
                       enum data_check check,
                       uint32_t from,
                       uint32_t to,
                       const uint8_t key[SHA256_BYTES])
{
    *s = (struct block_stream){
        .check = check, .from = from, .to = to, .crc32c = crc32c_best()};
    if (check == DATA_MAC)
        hmac_init(&s->keyed, key, SHA256_BYTES);
}

void block_stream_wipe(struct block_stream *s)
{
    mem_wipe(s, sizeof(*s));
}

/* All fields but crc and mac. */
static void block_fill_header(const struct block_stream *s, uint64_t seq, uint8_t *ret)
{
    memset(ret, 0, BLOCK_HEADER_BYTES);
    bytes_store_u32(ret + AT_BYTES, s->n_bytes);
    bytes_store(ret + AT_SEQUENCE, seq, 8);
    bytes_store_u32(ret + AT_NUMBER, s->subject.number);
    ret[AT_KIND] = s->subject.kind;
    bytes_store_u32(ret + AT_FROM, s->from);
    bytes_store_u32(ret + AT_TO, s->to);
}

void block_announce(struct block_stream *s, struct block_subject subject, uint32_t n)
{
    s->subject = subject;
    s->n_bytes = n;
    s->crc = 0;
    if (s->check == DATA_MAC)
        s->mac = s->keyed;
}

void block_add(struct block_stream *s, const void *p, size_t n)
{
    switch (s->check) {
    case DATA_BARE:
        break;
    case DATA_CRC:
        s->crc = s->crc32c(s->crc, p, n);
        break;
    case DATA_MAC:
        hmac_add(&s->mac, p, n);
        break;
    }
}

static void
block_add_side(struct block_stream *s, const struct cursor *c, bool is_out, uint64_t n)
{
    struct cursor at = *c;
    const uint8_t *in;
    uint8_t *out;

    while (n > 0 && s->check != DATA_BARE) {
        uint64_t m = cursor_next(&at, n, &in, &out);

        if (m == 0)
            return;
        block_add(s, is_out ? out : in, m);
        n -= m;
    }
}

void block_add_at(struct block_stream *s, const struct cursor *c, uint64_t n)
{
    block_add_side(s, c, true, n);
}

void block_write_header(struct block_stream *s,
                        struct block_subject subject,
                        const struct cursor *c,
                        bool is_out,
                        uint32_t n)
{
    block_announce(s, subject, n);
    block_fill_header(s, s->n_blocks++, s->header);
    if (s->check == DATA_MAC)
        hmac_add(&s->mac, s->header, AT_MAC);
    block_add_side(s, c, is_out, n);
    if (s->check == DATA_CRC)
        bytes_store_u32(s->header + AT_CRC, s->crc);
    if (s->check == DATA_MAC)
        hmac_end(&s->mac, s->header + AT_MAC);
}

static const char *subject_name(uint8_t kind)
{
    return kind == BLOCK_AGREEMENT ? "agreement"
           : kind < COLL_COUNT     ? collective_name((enum collective)kind)
                                   : "an unknown operation";
}

static int block_report_header(const struct block_stream *s, struct err *err)
{
    const uint8_t *h = s->header;

    return err_set(
        err, -EBADMSG,
        "is damaged or out of step: expected block %llu, %u bytes of %s %u from "
        "rank %u to %u, received block %llu, %u bytes of %s %u from rank %u to %u",
        (unsigned long long)s->n_blocks, s->n_bytes, subject_name(s->subject.kind),
        s->subject.number, s->from, s->to,
        (unsigned long long)bytes_load(h + AT_SEQUENCE, 8),
        bytes_load_u32(h + AT_BYTES), subject_name(h[AT_KIND]),
        bytes_load_u32(h + AT_NUMBER), bytes_load_u32(h + AT_FROM),
        bytes_load_u32(h + AT_TO));
}

int block_check_header(struct block_stream *s, struct err *err)
{
    uint8_t want[BLOCK_HEADER_BYTES];

    block_fill_header(s, s->n_blocks, want);
    if (s->check == DATA_CRC)
        memcpy(want + AT_CRC, s->header + AT_CRC, 4);
    if (s->check == DATA_MAC) {
        memcpy(want + AT_MAC, s->header + AT_MAC, SHA256_BYTES);
        hmac_add(&s->mac, s->header, AT_MAC);
    }
    return memcmp(want, s->header, sizeof(want)) == 0 ? 0 : block_report_header(s, err);
}

int block_check_data(struct block_stream *s, struct err *err)
{
    uint8_t mac[SHA256_BYTES];
    const char *what = NULL;

    s->n_blocks++;
    if (s->check == DATA_CRC && s->crc != bytes_load_u32(s->header + AT_CRC))
        what = "checksum";
    if (s->check == DATA_MAC) {
        hmac_end(&s->mac, mac);
        if (!mac_equal(mac, s->header + AT_MAC))
            what = "MAC";
    }
    if (!what)
        return 0;
    return err_set(
        err, -EBADMSG,
        "does not match its %s: %u bytes of %s %u were changed on their way, "
        "or by the program while they were sent",
        what, s->n_bytes, subject_name(s->subject.kind), s->subject.number);
}
