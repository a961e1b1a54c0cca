/* SPDX-License-Identifier: Apache-2.0 */
/* The live report of a job, as text: hvd-agent report, and for horovodrun --status. */
#ifndef RUNTIME_LAUNCH_REPORT_H
#define RUNTIME_LAUNCH_REPORT_H

#include "runtime/contract/contract.h"
#include "runtime/contract/token.h"
#include "runtime/live/live_query.h"

#define REPORT_TEXT_MAX (256u << 20)

struct report_source { /* whom to ask */
    char address[64], job_id[JOB_ID_MAX];
    uint16_t port;
    struct token token;
};
struct report_options {
    enum live_query_kind kind;
    bool is_json;
};

/* Asks, and appends the answer. 0; -errno with err, or without text: out of memory. */
int report_make(const struct report_source *a,
                const struct report_options *o,
                struct strbuf *out,
                struct err *err);

/* hvd-agent report. argv: the words behind "report". Returns the exit code: 0; 1 with a
 * message: the agent cannot be asked; 2: usage. */
int agent_report(char *const *argv);

#endif
