/* SPDX-License-Identifier: Apache-2.0 */
/* Called by gate.c. A mistake that all nodes have, such as an old runtime, is one line
 * and not one for each of a thousand nodes. Sentences come from tasks of the user: their
 * lengths are cut. */
#include "spank_plugin/sentences.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"

#define NAMES_SHOWN    3u
#define NAME_CUT       100u
#define TEXT_CUT       600u
#define LINE_MAX_BYTES 1024u /* room for all of these */

struct sentence {
    const char *name, *text; /* name_bytes 0: of no node */
    uint32_t name_bytes, text_bytes;
    bool is_printed, is_named;
};

static struct sentence sentence_split(const uint8_t *p, uint32_t size)
{
    const char *all = (const char *)p;
    const char *colon = size ? memmem(all, size, ": ", 2) : NULL;
    uint32_t n = colon ? (uint32_t)(colon - all) : 0;

    if (!n || memchr(all, ' ', n))
        return (struct sentence){.text = all, .text_bytes = size};
    return (struct sentence){
        .name = all, .name_bytes = n, .text = colon + 2, .text_bytes = size - n - 2};
}

static bool is_same_text(const struct sentence *a, const struct sentence *b)
{
    return a->text_bytes == b->text_bytes
           && memcmp(a->text, b->text, a->text_bytes) == 0;
}

/* Each task of a node sends the same. */
static bool is_named_before(const struct sentence *s,
                            const struct sentence *from,
                            const struct sentence *to)
{
    for (; from < to; from++)
        if (from->is_named && from->name_bytes == s->name_bytes
            && memcmp(from->name, s->name, s->name_bytes) == 0)
            return true;
    return false;
}

static int cut_to(uint32_t n_bytes, uint32_t most)
{
    return (int)(n_bytes < most ? n_bytes : most);
}

/* *first, and all later ones with its text. */
static void
print_group(struct sentence *first, struct sentence *end, sentence_fn print, void *arg)
{
    uint32_t n_names = 0;
    CLEANUP(strbuf_release) struct strbuf line = {0};

    strbuf_init(&line, LINE_MAX_BYTES);
    for (struct sentence *s = first; s < end; s++) {
        if (s->is_printed || !is_same_text(s, first))
            continue;
        s->is_printed = true;
        if (!s->name_bytes || is_named_before(s, first, s))
            continue;
        s->is_named = true;
        if (n_names++ < NAMES_SHOWN)
            strbuf_printf(&line, "%s%.*s", line.n ? ", " : "",
                          cut_to(s->name_bytes, NAME_CUT), s->name);
    }
    for (struct sentence *s = first; s < end; s++)
        s->is_named = false;
    if (n_names > NAMES_SHOWN)
        strbuf_printf(&line, " and %u more nodes", n_names - NAMES_SHOWN);
    strbuf_printf(&line, "%s%.*s", line.n ? ": " : "",
                  cut_to(first->text_bytes, TEXT_CUT), first->text);
    print(arg, strbuf_status(&line) ? "out of memory" : strbuf_str(&line));
}

void sentences_print(uint8_t *const *sentences,
                     const uint32_t *sizes,
                     uint32_t n,
                     sentence_fn print,
                     void *arg)
{
    AUTOFREE struct sentence *all = mem_calloc(n, sizeof(*all));
    uint32_t n_printed = 0;

    for (uint32_t i = 0; all && i < n; i++) {
        all[i] = sentence_split(sentences[i], sizes[i]);
        all[i].is_printed = sizes[i] == 0;
    }
    for (uint32_t i = 0; all && i < n && n_printed < SENTENCES_MAX; i++) {
        if (all[i].is_printed)
            continue;
        print_group(&all[i], all + n, print, arg);
        n_printed++;
    }
    if (!all)
        print(arg, "out of memory");
}
