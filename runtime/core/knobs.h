/* SPDX-License-Identifier: Apache-2.0 */
/* The variables that tune the runtime. Parser, defaults, runtime/doc/variables.md and
 * the man page are generated from one table (knob_table.h). contract/env_table.h has
 * the variables that assign ranks. Pure: the environment is a function. */
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
    KNOB_DECIMAL, /* a number such as 0.8; only the form is checked */
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
    KNOB_NO_EFFECT, /* accepted and ignored; `why`: the reason */
    KNOB_NOT_YET,   /* accepted with a warning; `why`: what happens instead */
    KNOB_REFUSED /* an error if it is set to more than the default; `why`: the reason */
};

struct knob {
    const char *name;
    enum knob_kind kind;
    enum knob_status status;
    const char *fallback; /* as a user writes it; "": unset */
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

/* Reads all rows. -EINVAL, -ERANGE: the message names variable, value and what is
 * allowed; -ENOTSUP: a refused variable is set. *ret is unchanged on failure. */
int knobs_read(getenv_fn get, void *arg, struct knob_values *ret, struct err *err);

/* What to log about a variable that is set and not honoured. The text is appended to
 * out. */
enum knob_note { KNOB_SAY_NOTHING, KNOB_SAY_INFO, KNOB_SAY_WARN };
enum knob_note
knob_note(const struct knob_values *v, enum knob_id id, struct strbuf *out);

/* The row of that name. */
bool knob_find(const char *name, enum knob_id *ret);
/* Checks one value, as knobs_read does, with the same messages. *ret: by kind, see
 * above; 0 for KNOB_TEXT. */
int knob_parse(enum knob_id id, const char *text, uint64_t *ret, struct err *err);

/* Entry i (from 0) of a KNOB_LIST text; false: it has fewer. */
bool knob_list_at(const char *list, size_t i, uint32_t *ret);

/* The known name nearest to `name`, which has one of our prefixes (HOROVOD_, HVD_,
 * PERSEUS_), is unknown to all parts of Ringmaster, and differs by at most two letters.
 * NULL otherwise. */
const char *knob_find_nearest(const char *name);

/* The table as Markdown, and as the body of a man page's list (mdoc). */
void knobs_markdown(struct strbuf *out);
void knobs_man(struct strbuf *out);

#endif
