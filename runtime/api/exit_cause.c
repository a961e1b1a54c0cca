/* SPDX-License-Identifier: Apache-2.0 */
/* The cause comes from the program (hvd_set_exit_cause: Python's hook for uncaught
 * exceptions and for sys.exit) or, for a C program, from exit() itself, whose status
 * on_exit passes on. runtime.c asks for it when the process leaves its world; a world
 * that has ended already gets no goodbye. The text is cleaned here too, so that the lock
 * protects a bounded copy. */
#include "runtime/api/exit_cause.h"

#include <stdio.h>

void exit_cause_set(struct exit_cause *c, const char *text, int code)
{
    (void)pthread_mutex_lock(&c->lock);
    goodbye_clean(text ? text : "", c->text, sizeof(c->text));
    c->code = code & 255;
    (void)pthread_mutex_unlock(&c->lock);
}

void exit_cause_add_status(struct exit_cause *c, int status)
{
    (void)pthread_mutex_lock(&c->lock);
    if (!*c->text && c->code == 0)
        c->code = status & 255;
    (void)pthread_mutex_unlock(&c->lock);
}

void exit_cause_how(struct exit_cause *c, char ret[GOODBYE_HOW_BYTES])
{
    (void)pthread_mutex_lock(&c->lock);
    ret[0] = '\0';
    if (c->code > 0)
        (void)snprintf(ret, GOODBYE_HOW_BYTES, "exited with code %d%s%s", c->code,
                       *c->text ? ": " : "", c->text); /* fits */
    else if (*c->text)
        (void)snprintf(ret, GOODBYE_HOW_BYTES, "ended: %s", c->text);
    (void)pthread_mutex_unlock(&c->lock);
}
