/* SPDX-License-Identifier: Apache-2.0 */
/* The cipher of connections that carry environments, which may hold secrets. */
#ifndef RUNTIME_LAUNCH_SEAL_H
#define RUNTIME_LAUNCH_SEAL_H

#include "runtime/wire/frame.h"

/* ChaCha20-Poly1305 (RFC 8439) of libsodium; the nonce is the sequence number. */
const struct frame_cipher *seal_cipher(void);

#endif
