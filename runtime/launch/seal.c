/* SPDX-License-Identifier: Apache-2.0 */
/* Each direction of each connection has its own key, and the sequence number only
 * increases, so no nonce is used twice with one key. Called by channel.c. */
#include "runtime/launch/seal.h"

#include <errno.h>
#include <sodium.h>

#include "runtime/wire/bytes.h"

#define NONCE_BYTES crypto_aead_chacha20poly1305_IETF_NPUBBYTES

_Static_assert(crypto_aead_chacha20poly1305_IETF_ABYTES == FRAME_TAG_BYTES, "tag");
_Static_assert(crypto_aead_chacha20poly1305_IETF_KEYBYTES == 32, "key");

static void seal_make_nonce(uint64_t sequence, uint8_t ret[NONCE_BYTES])
{
    bytes_store(ret, 0, NONCE_BYTES - 8);
    bytes_store(ret + NONCE_BYTES - 8, sequence, 8);
}

static void seal_payload(const uint8_t key[32],
                         uint64_t sequence,
                         const uint8_t header[FRAME_HEADER_BYTES],
                         uint8_t *p,
                         size_t n,
                         uint8_t ret_tag[FRAME_TAG_BYTES])
{
    uint8_t nonce[NONCE_BYTES];

    seal_make_nonce(sequence, nonce);
    (void)crypto_aead_chacha20poly1305_ietf_encrypt_detached(
        p, ret_tag, NULL, p, n, header, FRAME_HEADER_BYTES, NULL, nonce,
        key); /* always 0 */
}

static int seal_open_payload(const uint8_t key[32],
                             uint64_t sequence,
                             const uint8_t header[FRAME_HEADER_BYTES],
                             uint8_t *p,
                             size_t n,
                             const uint8_t tag[FRAME_TAG_BYTES])
{
    uint8_t nonce[NONCE_BYTES];

    seal_make_nonce(sequence, nonce);
    return crypto_aead_chacha20poly1305_ietf_decrypt_detached(
               p, NULL, p, n, tag, header, FRAME_HEADER_BYTES, nonce, key)
                   == 0
               ? 0
               : -EBADMSG;
}

const struct frame_cipher *seal_cipher(void)
{
    static const struct frame_cipher cipher = {.seal = seal_payload,
                                               .open = seal_open_payload};

    if (sodium_init() < 0) {
        /* It only chooses the fastest code for this processor. */
    }
    return &cipher;
}
