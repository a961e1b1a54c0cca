/* SPDX-License-Identifier: Apache-2.0 */
/* Command line of hvd-operator. One table makes the parser, --help and the man page's
 * list. */
#ifndef OPERATOR_OPTIONS_H
#define OPERATOR_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/strbuf.h"

struct options {
    const char *kubeconfig; /* NULL: $KUBECONFIG, else in-cluster */
    const char *ns;         /* NULL: all namespaces */
    const char *runtime_image;
    const char *cluster_domain; /* "" by default */
    uint32_t http_port, qps, burst;
    uint64_t watch_idle_ms;
    enum log_level log_level;
    bool log_json;
    enum { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_VERSION, OPTIONS_MAN } what;
};

/* Values point into argv. -EINVAL with a sentence. */
int options_parse(int argc, char **argv, struct options *ret, struct err *err);
void options_help(struct strbuf *out);
void options_man(struct strbuf *out); /* the OPTIONS section, mdoc */

#endif
