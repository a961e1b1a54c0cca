/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of the rendezvous as texts: "PUT 2 0 9" is one with three numbers. */
#ifndef TESTS_UNIT_RENDEZVOUS_FRAMES_H
#define TESTS_UNIT_RENDEZVOUS_FRAMES_H

#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "runtime/rendezvous/rdv_wire.h"
#include "runtime/wire/bytes.h"
#include "runtime/wire/frame.h"

enum { FRAME_WORDS = 8 };

static const char *const frame_types[] = {
    [RDV_JOIN] = "JOIN",   [RDV_WELCOME] = "WELCOME", [RDV_REDIRECT] = "REDIRECT",
    [RDV_ENTER] = "ENTER", [RDV_LEFT] = "LEFT",       [RDV_PUT] = "PUT",
    [RDV_ALL] = "ALL",     [RDV_REFUSED] = "REFUSED"};

static inline int frame_say(struct frame_conn *c, const char *text)
{
    const char *p = text + strcspn(text, " ");
    uint8_t type = 0, payload[4 * FRAME_WORDS];
    size_t n = 0;
    unsigned word;

    for (uint8_t i = RDV_JOIN; i < ARRAY_LEN(frame_types); i++)
        if (strncmp(frame_types[i], text, (size_t)(p - text)) == 0)
            type = i;
    for (int k; n < sizeof(payload) && sscanf(p, " %u%n", &word, &k) == 1;
         p += k, n += 4)
        bytes_store_u32(payload + n, word);
    return frame_send(c, type, payload, n);
}

/* Of a refusal the numbers alone; "+" stands for bytes that are no number. */
static inline void frame_text(const struct frame *f, char *ret, size_t size_bytes)
{
    const size_t n = f->type == RDV_REFUSED ? RDV_REFUSED_BYTES : f->n;
    int at = snprintf(ret, size_bytes, "%s", frame_types[f->type]);

    for (size_t i = 0; i < 4 * FRAME_WORDS && i + 4 <= n; i += 4)
        at += snprintf(ret + at, size_bytes - (size_t)at, " %u",
                       bytes_load_u32(f->p + i));
    if (n % 4 != 0)
        (void)snprintf(ret + at, size_bytes - (size_t)at, " +");
}

#endif
