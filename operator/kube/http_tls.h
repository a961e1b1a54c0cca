/* SPDX-License-Identifier: Apache-2.0 */
/* TLS and proxy of a request. For http.c only. */
#ifndef OPERATOR_KUBE_HTTP_TLS_H
#define OPERATOR_KUBE_HTTP_TLS_H

#include "operator/kube/creds.h"

/* Sets up easy, a CURL handle. The key in who must be valid until the handle is reset.
 * -EINVAL: libcurl does not support a setting. */
int http_secure(void *easy,
                const struct kube_config *config,
                const struct identity *who,
                struct err *err);

#endif
