/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of struct live_progress, for the report and for a rank's record. Pure. */
#ifndef RUNTIME_LIVE_LIVE_PROGRESS_H
#define RUNTIME_LIVE_LIVE_PROGRESS_H

#include "runtime/live/live_fields.h"

#define LIVE_PROGRESS_FIELDS 10
extern const struct live_field live_progress_fields[LIVE_PROGRESS_FIELDS];

void live_progress_init(struct live_progress *p); /* all unknown */

#endif
