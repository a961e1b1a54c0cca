/* SPDX-License-Identifier: Apache-2.0 */
/* What an elastic job waits for, as a sentence. Called by elastic.c and its users. */
#include "runtime/launch/core/elastic.h"

void elastic_explain(const struct elastic *e, struct strbuf *out)
{
    uint32_t n[SLOT_DONE + 1] = {0}, n_absent = 0;

    for (uint32_t i = 0; i < e->n_slots; i++) {
        n[e->slots[i].state] += !e->slots[i].is_stopping;
        n_absent += i % e->config.slots == 0 && e->slots[i].state == SLOT_ABSENT;
    }
    strbuf_printf(out, "%u of at least %u ranks are ready", n[SLOT_READY],
                  elastic_need(e));
    if (n[SLOT_MEMBER] > 0)
        strbuf_printf(out, ", %u have not left the last world", n[SLOT_MEMBER]);
    if (n[SLOT_ENDING] > 0)
        strbuf_printf(out, ", %u have failed and not ended yet", n[SLOT_ENDING]);
    if (n[SLOT_STARTING] > 0)
        strbuf_printf(out, ", %u start", n[SLOT_STARTING]);
    if (n[SLOT_EXCLUDED] > 0)
        strbuf_printf(out, ", %u slots are excluded after failures", n[SLOT_EXCLUDED]);
    if (n_absent > 0)
        strbuf_printf(out, ", %u of %u workers are absent", n_absent,
                      e->config.n_workers);
}
