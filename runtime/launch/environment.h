/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of a process that a launcher starts, and the launcher's own. */
#ifndef RUNTIME_LAUNCH_ENVIRONMENT_H
#define RUNTIME_LAUNCH_ENVIRONMENT_H

#include <stddef.h>

#include "runtime/contract/contract.h"

struct environment {
    char **v; /* NULL-terminated "NAME=value", for execve */
    size_t n, cap;
    int status; /* 0 or -ENOMEM; checked once at the end */
};

/* A getenv_fn: the variable of this process. arg is ignored. */
const char *environment_own(void *arg, const char *name);

void environment_init(struct environment *e);
void environment_release(struct environment *e);
/* Adds all variables in from except those of outer launchers (contract_is_inherited)
 * and those for agents only. */
void environment_inherit(struct environment *e, char *const *from);
/* Adds all pairs ("NAME=value") and overrides existing ones. */
void environment_overlay(struct environment *e, char *const *pairs);
void environment_set(struct environment *e, const char *name, const char *value);
void environment_default(struct environment *e, const char *name, const char *value);
void environment_prepend(struct environment *e, const char *name, const char *dir);
const char *environment_get(const struct environment *e, const char *name);
/* Adds the contract of one rank. */
int environment_contract(struct environment *e,
                         const struct contract *c,
                         struct err *err);
/* Puts dir/python before PYTHONPATH and dir/bin before PATH. dir "": does nothing. */
void environment_runtime(struct environment *e, const char *dir);

#endif
