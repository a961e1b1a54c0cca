/* SPDX-License-Identifier: Apache-2.0 */
/* The live report for people: a few lines of text. Pure. */
#ifndef RUNTIME_LIVE_LIVE_TEXT_H
#define RUNTIME_LIVE_LIVE_TEXT_H

#include "runtime/live/live_worker.h"

/* Seconds until the last step at the present rate; negative: unknown. */
double live_eta_s(const struct live_report *r);
/* "3 h 12 min", "4 min 5 s", "12 s". */
void live_put_duration(double seconds, struct strbuf *out);
/* Appends the report: one line for each thing that is known. Control characters in names
 * become '?'. */
void live_report_text(const struct live_report *r, struct strbuf *out);
/* Appends it in short, without line feed: "Training: 8 ranks, step 12 of 100, .." */
void live_report_line(const struct live_report *r, struct strbuf *out);
/* Appends a table of ranks: its head (r NULL), or one line. */
void live_rank_text(const struct live_rank *r, struct strbuf *out);

#endif
