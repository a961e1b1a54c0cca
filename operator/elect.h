/* SPDX-License-Identifier: Apache-2.0 */
/* Leader election on a Lease: the shell around core/lease.c. One thread. */
#ifndef OPERATOR_ELECT_H
#define OPERATOR_ELECT_H

#include <stdbool.h>
#include <stdint.h>

#include "operator/kube/client.h"

struct elect_config {
    const char *ns, *name; /* namespace and name of the Lease */
    uint64_t duration_ms, renew_ms, retry_ms;
    /* Called from elect_tick when this process starts or stops leading. */
    void (*changed)(void *arg, bool leads);
    void *arg;
};

struct elect;
int elect_new(struct kube *kube,
              const struct elect_config *config,
              struct elect **ret,
              struct err *err);
void elect_free(struct elect *e); /* after kube_free; accepts NULL */
void elect_tick(struct elect *e, uint64_t now_ns);
uint64_t elect_next_ns(const struct elect *e);
bool elect_leads(const struct elect *e);       /* reads the clock */
bool elect_was_leading(const struct elect *e); /* as `changed` last reported it */
const char *elect_identity(const struct elect *e);
/* Why the Lease could not be read so far; "" after the first success. */
const char *elect_trouble(const struct elect *e);
/* Releases the Lease: this process does not lead from now on. Call elect_tick until it
 * is released. */
void elect_release(struct elect *e);
bool elect_is_released(const struct elect *e);

#endif
