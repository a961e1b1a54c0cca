/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks of a data connection: what is sent is cut into blocks, and each begins with
 * a header of 64 bytes, little-endian:
 *
 *   bytes:4 crc:4 sequence:8 number:4 kind:1 zero:3 from:4 to:4 mac:32
 *
 * bytes: data after the header, without padding. sequence: blocks before this one in
 * this direction. number, kind: the batch or agreement. from, to: global ranks. crc:
 * CRC32C of the data, or 0. mac: HMAC-SHA-256 of the header before it and the data with
 * the connection's key of this direction, or 0. A receiver knows all other fields in
 * advance, so a header is right or wrong as a whole. */
#ifndef RUNTIME_BACKEND_CPU_NET_BLOCK_H
#define RUNTIME_BACKEND_CPU_NET_BLOCK_H

#include "runtime/backend/backend.h"
#include "runtime/backend/cpu/crc32c.h"
#include "runtime/backend/cpu/vec.h"
#include "runtime/base/sha256.h"

#define BLOCK_HEADER_BYTES 64
#define BLOCK_MAX_BYTES    (256u << 10) /* of data; stays in a CPU's cache */
#define BLOCK_AGREEMENT    255          /* a kind, beside enum collective */

struct block_subject { /* what blocks are part of */
    uint32_t number;
    uint8_t kind;
};

struct block_stream { /* one direction of a connection */
    enum data_check check;
    uint32_t from, to;
    uint64_t n_blocks; /* complete ones, and for a sender the current one */
    crc32c_fn crc32c;
    struct hmac keyed; /* DATA_MAC: has the key */
    /* of the current block */
    struct block_subject subject;
    uint32_t n_bytes;
    uint8_t header[BLOCK_HEADER_BYTES];
    uint32_t crc;
    struct hmac mac;
};

void block_stream_init(struct block_stream *s,
                       enum data_check check,
                       uint32_t from,
                       uint32_t to,
                       const uint8_t key[SHA256_BYTES]);
void block_stream_wipe(struct block_stream *s);

/* Sender: the header of the next n bytes at c, which must not change until they are
 * sent. is_out: they are on c's out side. */
void block_write_header(struct block_stream *s,
                        struct block_subject subject,
                        const struct cursor *c,
                        bool is_out,
                        uint32_t n);

/* Receiver, in this order for each block: announce; header[] is received; check_header;
 * its data is received and added in pieces; check_data. An error is -EBADMSG, its text
 * the end of a sentence: "does not match its checksum: ...". */
void block_announce(struct block_stream *s, struct block_subject subject, uint32_t n);
int block_check_header(struct block_stream *s, struct err *err);
void block_add(struct block_stream *s, const void *p, size_t n);
/* The next n bytes on c's out side; c is not advanced. */
void block_add_at(struct block_stream *s, const struct cursor *c, uint64_t n);
int block_check_data(struct block_stream *s, struct err *err);

#endif
