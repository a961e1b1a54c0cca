/* SPDX-License-Identifier: Apache-2.0 */
/* How a request reaches the server and knows it: TLS and proxy. For http.c only. */
#ifndef OPERATOR_KUBE_HTTP_TLS_H
#define OPERATOR_KUBE_HTTP_TLS_H

#include "operator/kube/creds.h"

/* easy: a CURL handle; who's key is used until it is reset. 0 or -EINVAL when libcurl
 * cannot do what is asked for. */
int http_secure(void *easy,
                const struct kube_config *config,
                const struct identity *who,
                struct err *err);

#endif
