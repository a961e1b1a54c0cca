/* SPDX-License-Identifier: Apache-2.0 */
/* The variables that tune the runtime: one table (knob_table.h) from which parser,
 * defaults, README and man page are made. Who is which rank is contract/env_table.h's.
 * Pure: the environment is a function. */
#ifndef RUNTIME_CORE_KNOBS_H
#define RUNTIME_CORE_KNOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"
#include "runtime/contract/contract.h"
#include "runtime/core/knob_table.h"

enum knob_id {
#define ID(name, ...) KNOB_##name,
    KNOBS(ID)
#undef ID
        KNOB_COUNT
};

enum knob_kind {
    KNOB_BOOL,    /* 1 0 true false yes no on off -> 0 or 1 */
    KNOB_NUMBER,  /* a whole number */
    KNOB_DECIMAL, /* a number such as 0.8; only its form is checked */
    KNOB_BYTES,   /* a whole number, with K, M or G: times 2^10, 2^20, 2^30 */
    KNOB_MIB,     /* a whole number of MiB -> bytes */
    KNOB_SECONDS, /* 30, 0.5, 200ms, 5m -> nanoseconds */
    KNOB_MS,      /* milliseconds, 1 or 0.5 -> nanoseconds */
    KNOB_TEXT,
    KNOB_LIST,  /* comma list of numbers; the value is how many */
    KNOB_CHOICE /* one of the words of `choices`, in any case -> its index */
};

enum knob_status {
    KNOB_HONOURED,
    KNOB_NO_EFFECT, /* accepted; `why` says why there is nothing to tune */
    KNOB_NOT_YET, /* accepted; `why` says what happens instead. A warning if it asks */
    KNOB_REFUSED  /* an error if it asks for it; `why` says what to do */
};

struct knob {
    const char *name;
    enum knob_kind kind;
    enum knob_status status;
    const char *fallback; /* as one would write it; "" : unset */
    uint64_t min, max;    /* in the unit of the text: ms for SECONDS, us for MS */
    const char *choices;  /* "mpi gloo ccl"; "" for other kinds */
    const char *meaning;
    const char *why; /* "" for KNOB_HONOURED */
};

const struct knob *knob_row(enum knob_id id);

struct knob_values {
    uint64_t v[KNOB_COUNT];    /* by kind, see above; 0 for KNOB_TEXT */
    const char *s[KNOB_COUNT]; /* the environment's text or the fallback; borrowed */
    bool is_set[KNOB_COUNT];   /* an empty value counts as unset */
};

/* All rows. -EINVAL, -ERANGE: the variable, its value and what is allowed; -ENOTSUP: a
 * refused one asks for what we cannot do. ret is untouched on failure. */
int knobs_read(getenv_fn get, void *arg, struct knob_values *ret, struct err *err);

/* What is to be said once about a variable that is set and not honoured. */
enum knob_note { KNOB_SAY_NOTHING, KNOB_SAY_INFO, KNOB_SAY_WARN };
enum knob_note
knob_note(const struct knob_values *v, enum knob_id id, struct strbuf *out);

/* Entry i (from 0) of a KNOB_LIST text; false: it has fewer. */
bool knob_list_at(const char *list, size_t i, uint32_t *ret);

/* `name` looks like one of ours (HOROVOD_, HVD_, PERSEUS_), is none that any part of
 * Ringmaster knows, and is at most two typing errors away from the one returned. NULL
 * otherwise. */
const char *knob_find_nearest(const char *name);

/* The table for people: Markdown rows, and the body of a man page's list (mdoc). */
void knobs_markdown(struct strbuf *out);
void knobs_man(struct strbuf *out);

#endif
