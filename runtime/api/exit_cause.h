/* SPDX-License-Identifier: Apache-2.0 */
/* Why this process ends, for its goodbye to the other ranks. Any thread. */
#ifndef RUNTIME_API_EXIT_CAUSE_H
#define RUNTIME_API_EXIT_CAUSE_H

#include <pthread.h>

#include "runtime/core/goodbye.h"

struct exit_cause {
    pthread_mutex_t lock;
    char text[GOODBYE_HOW_BYTES - 40]; /* lock, as all below; "": none */
    int code;                          /* 0: none */
};
#define EXIT_CAUSE_INIT                                                                \
    {                                                                                  \
        .lock = PTHREAD_MUTEX_INITIALIZER                                              \
    }

/* Replaces both; text may be NULL. */
void exit_cause_set(struct exit_cause *c, const char *text, int code);
/* The process calls exit(status): this is the code if nothing is known. */
void exit_cause_add_status(struct exit_cause *c, int status);
/* "ended: TEXT", "exited with code 3", "exited with code 1: TEXT"; "": no failure. */
void exit_cause_how(struct exit_cause *c, char ret[GOODBYE_HOW_BYTES]);

#endif
