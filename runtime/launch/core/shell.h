/* SPDX-License-Identifier: Apache-2.0 */
/* The remote shell of hvd-agent: its command line, which is ssh's as far as MPI's
 * launchers use it, and what its two ends tell each other, as bytes. Pure.
 *
 *   RUN     to agent    protocol:4 has_input:4 from:str command:str
 *   INPUT   to agent    bytes
 *   CLOSE   to agent    -                   standard input has ended
 *   SIGNAL  to agent    number:4            for the command's process group
 *   OUTPUT  to us       stream:4 bytes
 *   END     to us       code:4              the command has ended, all output is sent
 *   CREDIT  both        n:4                 so many more bytes may come
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
#define SHELL_CREDIT_BYTES      (128u << 10) /* each way, before the first CREDIT */
#define SHELL_CREDIT_STEP_BYTES (32u << 10)  /* read before it is given back */
#define SHELL_CHUNK_BYTES       (16u << 10)
#define SHELL_PEER_NS           (60 * NS_PER_S) /* silence that counts as a loss */

struct shell_words {
    char host[HOST_NAME_MAX_BYTES]; /* without the user */
    char *const *command;           /* into argv; at least one word */
    bool has_input;                 /* no -n */
};
/* argv begins with the first option. -EINVAL with a sentence. */
int shell_words_parse(char *const *argv, struct shell_words *ret, struct err *err);
/* The words with blanks between, as ssh sends them. -E2BIG, -ENOMEM with a sentence. */
int shell_words_join(char *const *command, struct strbuf *out, struct err *err);

struct shell_run {
    bool has_input;
    char from[HOST_NAME_MAX_BYTES]; /* the name that the asking host has for itself */
    char *command;                  /* of a read one; mem_free */
};
void shell_run_write(const struct shell_run *r,
                     const char *command,
                     struct strbuf *out);
int shell_run_read(const uint8_t *p, size_t n, struct shell_run *ret, struct err *err);
/* A message that is one number. */
int shell_number_read(const uint8_t *p, size_t n, uint32_t *ret, struct err *err);
/* True when name stands in the command as a host's name, not as part of another. */
bool shell_is_named(const char *command, const char *name);
/* True when host is this one's own name, bare or with a domain. */
bool shell_is_own_name(const char *host, const char *own);

#endif
