/* SPDX-License-Identifier: Apache-2.0 */
/* The frames of a data connection: what is sent is cut into blocks, and each begins with
 * a header of 64 bytes, little-endian:
 *
 *   bytes:4 crc:4 sequence:8 number:4 kind:1 zero:3 from:4 to:4 mac:32
 *
 * bytes: data after the header, without padding. sequence: frames before this one in
 * this direction. number, kind: the batch or agreement. from, to: global ranks. crc:
 * CRC32C of the data, or 0. mac: HMAC-SHA-256 of the header before it and the data with
 * the connection's key of this direction, or 0. A receiver knows all other fields in
 * advance, so a header is right or wrong as a whole. */
#ifndef RUNTIME_BACKEND_CPU_NET_FRAME_H
#define RUNTIME_BACKEND_CPU_NET_FRAME_H

#include "runtime/backend/backend.h"
#include "runtime/backend/cpu/crc32c.h"
#include "runtime/backend/cpu/vec.h"
#include "runtime/base/sha256.h"

#define FRAME_HEADER_BYTES 64
#define FRAME_MAX_BYTES    (256u << 10) /* of data; stays in a CPU's cache */
#define FRAME_AGREEMENT    255          /* a kind, beside enum collective */

struct frame_subject { /* what frames are part of */
    uint32_t number;
    uint8_t kind;
};

struct frame_stream { /* one direction of a connection */
    enum data_check check;
    uint32_t from, to;
    uint64_t n_frames; /* complete ones, and for a sender the current one */
    crc32c_fn crc32c;
    struct hmac keyed; /* DATA_MAC: has the key */
    /* of the current frame */
    struct frame_subject subject;
    uint32_t n_bytes;
    uint8_t header[FRAME_HEADER_BYTES];
    uint32_t crc;
    struct hmac mac;
};

void frame_stream_init(struct frame_stream *s,
                       enum data_check check,
                       uint32_t from,
                       uint32_t to,
                       const uint8_t key[SHA256_BYTES]);
void frame_stream_wipe(struct frame_stream *s);

/* Sender: the header of the next n bytes at c, which must not change until they are
 * sent. is_out: they are on c's out side. */
void frame_write_header(struct frame_stream *s,
                        struct frame_subject subject,
                        const struct cursor *c,
                        bool is_out,
                        uint32_t n);

/* Receiver, in this order for each frame: announce; header[] is received; check_header;
 * its data is received and added in pieces; check_data. An error is -EBADMSG, its text
 * the end of a sentence: "does not match its checksum: ...". */
void frame_announce(struct frame_stream *s, struct frame_subject subject, uint32_t n);
int frame_check_header(struct frame_stream *s, struct err *err);
void frame_add(struct frame_stream *s, const void *p, size_t n);
/* The next n bytes on c's out side; c is not advanced. */
void frame_add_at(struct frame_stream *s, const struct cursor *c, uint64_t n);
int frame_check_data(struct frame_stream *s, struct err *err);

#endif
