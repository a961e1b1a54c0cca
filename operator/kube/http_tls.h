/* SPDX-License-Identifier: Apache-2.0 */
/* TLS and proxy of a request. For http.c only. */
#ifndef OPERATOR_KUBE_HTTP_TLS_H
#define OPERATOR_KUBE_HTTP_TLS_H

#include "operator/kube/creds.h"

/* easy: a CURL handle; who's key is used until the handle is reset. 0, or -EINVAL if
 * libcurl does not support a setting. */
int http_secure(void *easy,
                const struct kube_config *config,
                const struct identity *who,
                struct err *err);

#endif
