/* SPDX-License-Identifier: Apache-2.0 */
/* "hvd-step/4 port=40123 gate=40124 ends=40125 generation=0 token=<64 hex digits>".
 * Written by srun.c, read by node.c.
 * It has a version because login nodes and compute nodes are upgraded at different
 * times. */
#include "spank_plugin/ticket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "runtime/base/sha256.h"

#define MAGIC TICKET_VERSION " "

void ticket_render(const struct ticket *t, char ret[TICKET_MAX_BYTES])
{
    char hex[2 * sizeof(t->token.key) + 1];
    hex_encode(t->token.key, sizeof(t->token.key), hex);
    (void)snprintf(ret, TICKET_MAX_BYTES,
                   MAGIC "port=%u gate=%u ends=%u generation=%u token=%s",
                   (unsigned)t->port, (unsigned)t->gate_port, (unsigned)t->ends_port,
                   t->generation, hex);
    explicit_bzero(hex, sizeof(hex));
}

int ticket_parse(const char *text, size_t n, struct ticket *ret, struct err *err)
{
    char buf[TICKET_MAX_BYTES], port[8], gate[8], ends[8], generation[12];
    char hex[2 * sizeof(ret->token.key) + 2];
    struct ticket t = {0};
    if (n >= sizeof(buf) || n < strlen(MAGIC)
        || memcmp(text, MAGIC, strlen(MAGIC)) != 0)
        return err_set(err, -EINVAL,
                       "%s was not created by this version of spank_hvd.so; the same "
                       "version must be installed on the login and compute nodes",
                       TICKET_ENV);
    memcpy(buf, text, n);
    buf[n] = '\0';
    uint32_t number, gate_number, ends_number;
    int rc = -EINVAL;
    if (sscanf(buf + strlen(MAGIC),
               "port=%7[0-9] gate=%7[0-9] ends=%7[0-9] generation=%11[0-9] "
               "token=%65[0-9a-f]",
               port, gate, ends, generation, hex)
            == 5
        && parse_u32("port", port, 1, 65535, &number, NULL) == 0
        && parse_u32("gate", gate, 1, 65535, &gate_number, NULL) == 0
        && parse_u32("ends", ends, 0, 65535, &ends_number, NULL) == 0
        && parse_u32("generation", generation, 0, UINT32_MAX, &t.generation, NULL) == 0
        && hex_decode(hex, t.token.key, sizeof(t.token.key)) == 0) {
        t.port = (uint16_t)number;
        t.gate_port = (uint16_t)gate_number;
        t.ends_port = (uint16_t)ends_number;
        ticket_render(&t, buf);
        /* sscanf accepts other blanks, and more behind it */
        if (strlen(buf) == n && memcmp(buf, text, n) == 0) {
            *ret = t;
            rc = 0;
        }
    }
    explicit_bzero(buf, sizeof(buf));
    explicit_bzero(hex, sizeof(hex));
    explicit_bzero(&t, sizeof(t));
    return rc ? err_set(err, rc, "%s is damaged", TICKET_ENV) : 0;
}
