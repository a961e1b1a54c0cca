/* SPDX-License-Identifier: Apache-2.0 */
/* Structs as tables of fields: from one table come the wire form, its reader and the
 * JSON form. Pure. Used by live_report.c and live_worker.c only.
 *
 * Wire form of a section: the fields in order, numbers with 8 bytes. A field is never
 * removed or changed, only appended, so a reader of another version reads what both
 * know. */
#ifndef RUNTIME_LIVE_LIVE_FIELDS_H
#define RUNTIME_LIVE_LIVE_FIELDS_H

#include "runtime/live/live_worker.h"

enum live_type {
    LIVE_U32,
    LIVE_U64,
    LIVE_I32, /* as the next two: negative is unknown, and left out of the JSON form */
    LIVE_I64,
    LIVE_F64,
    LIVE_BOOL,
    LIVE_MS,    /* uint64_t; in the JSON form seconds */
    LIVE_TIME,  /* uint64_t, microseconds since the epoch; 0: none. RFC 3339 in JSON */
    LIVE_TEXT,  /* char[size] */
    LIVE_STATE, /* enum live_state; its name in the JSON form */
    LIVE_CAUSE, /* enum live_cause */
    LIVE_RANK_STATE, /* enum live_rank_state */
    LIVE_METRICS,    /* live_progress.metrics; `count` is the offset of their number */
    LIVE_RANKS,      /* live_stall.missing; the same. The number may exceed the list */
};

struct live_field {
    const char *name; /* in the JSON form */
    enum live_type type;
    size_t at, size, count; /* in the section's struct; size: of LIVE_TEXT */
};

struct live_section {
    uint16_t id;
    const char *name; /* in the JSON form; NULL: its fields are the object's own */
    size_t at;        /* of the section's struct in the whole */
    const struct live_field *fields;
    size_t n;
    /* A value of the JSON form is left out where this is false. NULL: always there. */
    bool (*is_there)(const void *section);
};

/* Appends the sections of whole, each with its header {id:2 length:4}. */
void live_sections_pack(const struct live_section *s,
                        size_t n,
                        const void *whole,
                        struct strbuf *out);
/* Reads sections up to the end. Unknown ones are skipped. -EPROTO: what: "report". */
int live_sections_unpack(const struct live_section *s,
                         size_t n,
                         const void *p,
                         size_t n_bytes,
                         void *whole,
                         const char *what,
                         struct err *err);
/* Appends an object. */
void live_sections_json(const struct live_section *s,
                        size_t n,
                        const void *whole,
                        struct strbuf *out);

#endif
