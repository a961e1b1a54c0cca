/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a rank's record. Called by the agents, the hub and its readers. */
#include "runtime/live/live_worker.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/live/live_progress.h"
#include "runtime/wire/bytes.h"

#define AT(field) offsetof(struct live_rank, field)

static const struct live_field rank_fields[] = {
    {"rank", LIVE_U32, AT(rank), 0, 0},
    {"pid", LIVE_U32, AT(pid), 0, 0},
    {"state", LIVE_RANK_STATE, AT(state), 0, 0},
    {"age", LIVE_MS, AT(age_ms), 0, 0},
    {"steps", LIVE_U64, AT(steps), 0, 0},
    {"stepNanoseconds", LIVE_U64, AT(step_ns), 0, 0},
    {"blockedNanoseconds", LIVE_U64, AT(blocked_ns), 0, 0},
    {"busBytes", LIVE_U64, AT(bus_bytes), 0, 0},
    {"allreduceNanoseconds", LIVE_U64, AT(allreduce_ns), 0, 0},
    {"readyNanoseconds", LIVE_U64, AT(ready_ns), 0, 0},
    {"batches", LIVE_U64, AT(n_batches), 0, 0},
    {"cpuSeconds", LIVE_MS, AT(cpu_ms), 0, 0},
    {"residentBytes", LIVE_U64, AT(rss_bytes), 0, 0},
    {"stoppedSeconds", LIVE_MS, AT(stopped_ms), 0, 0},
    {"stallMilliseconds", LIVE_I64, AT(stall_ms), 0, 0},
    {"waitsSince", LIVE_TIME, AT(waits_us), 0, 0},
};
static const struct live_section sections[] = {
    {1, NULL, 0, rank_fields, ARRAY_LEN(rank_fields), NULL},
    {2, "progress", AT(progress), live_progress_fields, LIVE_PROGRESS_FIELDS, NULL},
};

const char *live_rank_state_name(enum live_rank_state s)
{
    switch (s) {
    case LIVE_RANK_STARTED:
        return "Started";
    case LIVE_RANK_IN_WORLD:
        return "InWorld";
    case LIVE_RANK_EXITED:
        return "Exited";
    }
    return "Unknown";
}

void live_rank_init(struct live_rank *r)
{
    memset(r, 0, sizeof(*r));
    r->stall_ms = -1;
    live_progress_init(&r->progress);
}

void live_rank_pack(const struct live_rank *r, struct strbuf *out)
{
    live_sections_pack(sections, ARRAY_LEN(sections), r, out);
}

int live_rank_unpack(const void *p, size_t n, struct live_rank *ret, struct err *err)
{
    AUTOFREE struct live_rank *r = mem_alloc(sizeof(*r));
    int rc;

    if (!r)
        return err_set(err, -ENOMEM, "out of memory for a rank's record");
    live_rank_init(r);
    rc = live_sections_unpack(sections, ARRAY_LEN(sections), p, n, r, "rank's record",
                              err);
    if (rc == 0)
        *ret = *r;
    return rc;
}

void live_rank_json(const struct live_rank *r, struct strbuf *out)
{
    live_sections_json(sections, ARRAY_LEN(sections), r, out);
}

int live_ranks_read(const void *p,
                    size_t n,
                    live_rank_fn fn,
                    void *arg,
                    uint32_t *ret_n,
                    struct err *err)
{
    AUTOFREE struct live_rank *r = mem_alloc(sizeof(*r));
    struct bytes_reader in = {.p = p, .left = n};
    uint32_t n_ranks = bytes_u32(&in);
    int rc = r ? 0 : err_set(err, -ENOMEM, "out of memory for a rank's record");

    for (uint32_t i = 0; rc == 0 && i < n_ranks; i++) {
        uint32_t n_bytes = bytes_u32(&in);
        const uint8_t *record = bytes_raw(&in, n_bytes);

        rc = record ? live_rank_unpack(record, n_bytes, r, err)
                    : err_set(err, -EPROTO, "the list of ranks is cut");
        if (rc == 0)
            rc = fn(arg, r);
    }
    if (rc == 0 && in.is_bad)
        rc = err_set(err, -EPROTO, "the list of ranks is cut");
    if (rc == 0)
        *ret_n = n_ranks;
    return rc;
}
