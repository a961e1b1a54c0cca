/* SPDX-License-Identifier: Apache-2.0 */
/* The remote shell of hvd-agent: its command line (the subset of ssh's that MPI
 * launchers use) and its messages. Pure.
 *
 *   RUN     to agent    protocol:4 has_input:4 from:str command:str
 *   INPUT   to agent    bytes
 *   CLOSE   to agent    -                   standard input has ended
 *   SIGNAL  to agent    number:4            for the command's process group
 *   OUTPUT  to client   stream:4 bytes
 *   END     to client   code:4              the command has exited, all output is sent
 *   CREDIT  both        n:4                 number of further bytes allowed
 *   PING    both        - */
#ifndef RUNTIME_LAUNCH_CORE_SHELL_H
#define RUNTIME_LAUNCH_CORE_SHELL_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/clock.h"
#include "runtime/base/strbuf.h"
#include "runtime/contract/hostlist.h"

enum shell_type {
    SHELL_RUN = 1,
    SHELL_INPUT,
    SHELL_CLOSE,
    SHELL_SIGNAL,
    SHELL_OUTPUT,
    SHELL_END,
    SHELL_CREDIT,
    SHELL_PING
};
#define SHELL_PROTOCOL          1u
#define SHELL_COMMAND_MAX_BYTES 131000u /* Linux: one argument of exec has 128 KiB */
#define SHELL_MAX_BYTES         (256u << 10)
/* in each direction, before the first CREDIT */
#define SHELL_CREDIT_BYTES      (128u << 10)
/* bytes to read before credit is given back */
#define SHELL_CREDIT_STEP_BYTES (32u << 10)
#define SHELL_CHUNK_BYTES       (16u << 10)
/* silence after which a peer counts as lost */
#define SHELL_PEER_NS           (60 * NS_PER_S)

struct shell_words {
    char host[HOST_NAME_MAX_BYTES]; /* without the user */
    char *const *command;           /* points into argv; at least one word */
    bool has_input;                 /* -n was not given */
};
/* argv[0] is the first option. -EINVAL with err. */
int shell_words_parse(char *const *argv, struct shell_words *ret, struct err *err);
/* Joins the words with blanks, as ssh does. -E2BIG or -ENOMEM with err. */
int shell_words_join(char *const *command, struct strbuf *out, struct err *err);

struct shell_run {
    bool has_input;
    char from[HOST_NAME_MAX_BYTES]; /* host name of the client */
    char *command;                  /* set by shell_run_read; mem_free */
};
void shell_run_write(const struct shell_run *r,
                     const char *command,
                     struct strbuf *out);
int shell_run_read(const uint8_t *p, size_t n, struct shell_run *ret, struct err *err);
/* Reads a message that consists of one number. */
int shell_number_read(const uint8_t *p, size_t n, uint32_t *ret, struct err *err);
/* True if the command contains name as a whole host name. */
bool shell_is_named(const char *command, const char *name);
/* True if host is our own name, with or without a domain. */
bool shell_is_own_name(const char *host, const char *own);

#endif
