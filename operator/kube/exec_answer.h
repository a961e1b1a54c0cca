/* SPDX-License-Identifier: Apache-2.0 */
/* The output of a credential plug-in: an ExecCredential. Pure; also a fuzz target. */
#ifndef OPERATOR_KUBE_EXEC_ANSWER_H
#define OPERATOR_KUBE_EXEC_ANSWER_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"

struct exec_answer { /* owned; a token, or certificate and key, or all */
    char *token;     /* one line */
    char *cert_pem, *key_pem;
    uint64_t expires_wall_s; /* 0: absent */
};
/* api_version: the requested one. The error message never contains a part of the text. */
int exec_answer_read(const char *text,
                     size_t n,
                     const char *api_version,
                     struct exec_answer *ret,
                     struct err *err);
void exec_answer_release(struct exec_answer *a); /* wiped; accepts a zeroed struct */

#endif
