/* SPDX-License-Identifier: Apache-2.0 */
/* What is parsed:
 *
 *   Thread 0x00007f21 (most recent call first):          Python's faulthandler; from
 *     File "/srv/train.py", line 42 in step              3.14 on with "[name]"
 *   Current thread 0x00007f22 (most recent call first):
 *     File "/usr/lib/python3.11/threading.py", line 1133 in acquire
 *   native
 *     futex_wait (libc.so.6)                             libhvd's handler, with the
 *     (python3.11)                                       names of launch/symbols.c
 *   end
 *
 * Lines that match nothing are skipped: the rank's program may write there, too. Called
 * by hang.c, and by the agent for grouping. */
#include "runtime/launch/core/stacks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/contract/stacks_file.h"

/* --- parsing --- */

struct stacks_reader {
    struct arena *a;
    struct stack_dump *d;
    struct stack_thread *to; /* the thread whose frames follow; NULL: skipped */
    bool is_out;             /* of memory */
};

/* The program can write anything, and people read it in a terminal. */
static char *text_copy(struct stacks_reader *r, const char *p, size_t n)
{
    char *s = arena_alloc(r->a, n + 1);

    if (!s) {
        r->is_out = true;
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        s[i] = (unsigned char)p[i] < 0x20 || p[i] == 0x7f ? '?' : p[i];
    return s;
}

static void thread_add_frame(struct stacks_reader *r, struct stack_frame f)
{
    struct stack_thread *t = r->to;

    if (!t || t->n == STACK_FRAMES_MAX || !f.file || !f.function)
        return;
    if (!t->frames)
        t->frames = arena_calloc(r->a, STACK_FRAMES_MAX, sizeof(*t->frames));
    if (t->frames)
        t->frames[t->n++] = f;
    else
        r->is_out = true;
}

/* `  File "/srv/train.py", line 42 in step`; true: it is such a line. */
static bool line_read_frame(struct stacks_reader *r, const char *p, size_t n)
{
    static const char begin[] = "  File \"", middle[] = "\", line ";
    const char *end = p + n, *at, *file = p + strlen(begin);
    struct stack_frame f;
    char *after;

    if (n <= strlen(begin) || strncmp(p, begin, strlen(begin)) != 0)
        return false;
    for (at = end - 1; at > file; at--) /* the last one: a name may contain it */
        if ((size_t)(end - at) > strlen(middle)
            && strncmp(at, middle, strlen(middle)) == 0)
            break;
    if (at == file)
        return true;
    f.file = text_copy(r, file, (size_t)(at - file));
    f.line = (uint32_t)strtoul(at + strlen(middle), &after, 10);
    if (after + 4 >= end || strncmp(after, " in ", 4) != 0)
        return true;
    f.function = text_copy(r, after + 4, (size_t)(end - after) - 4);
    thread_add_frame(r, f);
    return true;
}

/* `    futex_wait (libc.so.6)` or `    (libc.so.6)`, of the native stack. */
static void line_read_native(struct stacks_reader *r, const char *p, size_t n)
{
    const char *end = p + n, *open;
    struct stack_frame f = {.line = 0};

    while (p < end && *p == ' ')
        p++;
    for (open = end; open > p && *open != '('; open--)
        ;
    if (*open != '(' || end[-1] != ')')
        return;
    f.file = text_copy(r, open + 1, (size_t)(end - open) - 2);
    f.function = text_copy(r, p, open > p ? (size_t)(open - p) - 1 : 0);
    thread_add_frame(r, f);
}

static void line_read_thread(struct stacks_reader *r, const char *p, bool is_current)
{
    struct stack_dump *d = r->d;
    const char *number = strstr(p, "0x");

    r->to = NULL;
    if (d->n_threads == STACK_THREADS_MAX)
        return;
    r->to = &d->threads[d->n_threads++];
    r->to->is_current = is_current;
    r->to->ident = number ? strtoull(number, NULL, 16) : 0;
}

static bool line_is(const char *p, size_t n, const char *word)
{
    return n == strlen(word) && strncmp(p, word, n) == 0;
}

static void line_read(struct stacks_reader *r, const char *p, size_t n)
{
    if (line_read_frame(r, p, n))
        return;
    if (n > 7 && strncmp(p, "Thread ", 7) == 0)
        line_read_thread(r, p, false);
    else if (n > 15 && strncmp(p, "Current thread ", 15) == 0)
        line_read_thread(r, p, true);
    else if (line_is(p, n, STACKS_NATIVE))
        r->to = &r->d->native;
    else if (line_is(p, n, STACKS_OTHER))
        r->d->is_by_other = true;
    else if (line_is(p, n, STACKS_END))
        r->d->is_whole = true;
    else if (r->to == &r->d->native)
        line_read_native(r, p, n);
}

int stacks_parse(const char *text, struct arena *a, struct stack_dump *ret)
{
    struct stacks_reader r = {.a = a, .d = ret};

    *ret = (struct stack_dump){0};
    while (*text && !ret->is_whole) {
        size_t n = strcspn(text, "\n");

        line_read(&r, text, n);
        text += n + (text[n] == '\n');
    }
    return r.is_out ? -ENOMEM : 0;
}

/* --- questions --- */

const struct stack_thread *stacks_main(const struct stack_dump *d)
{
    for (uint32_t i = 0; i < d->n_threads && !d->is_by_other; i++)
        if (d->threads[i].is_current)
            return &d->threads[i];
    /* Python lists new threads first. */
    return d->n_threads > 0 ? &d->threads[d->n_threads - 1] : NULL;
}

bool stack_thread_is_same(const struct stack_thread *a, const struct stack_thread *b)
{
    bool is_same = a->n == b->n;

    for (uint32_t i = 0; is_same && i < a->n; i++)
        is_same = a->frames[i].line == b->frames[i].line
                  && strcmp(a->frames[i].function, b->frames[i].function) == 0
                  && strcmp(a->frames[i].file, b->frames[i].file) == 0;
    return is_same;
}

bool stack_frame_is_runtime(const struct stack_frame *f)
{
    if (f->line == 0)
        return strncmp(f->file, "libhvd", 6) == 0
               || strncmp(f->function, "hvd_", 4) == 0;
    return strstr(f->file, "/_hvd/") || strstr(f->file, "-packages/horovod/");
}

bool stack_frame_is_library(const struct stack_frame *f)
{
    return stack_frame_is_runtime(f) || strstr(f->file, "/lib/python")
           || strstr(f->file, "-packages/") || f->file[0] == '<';
}

/* --- texts --- */

static const char *path_last(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

void stack_frame_put(const struct stack_frame *f, struct strbuf *out)
{
    if (f->line > 0)
        strbuf_printf(out, "%.80s (%.80s:%u)", f->function, path_last(f->file),
                      f->line);
    else
        strbuf_printf(out, "%.80s (%.80s)", f->function[0] ? f->function : "a function",
                      path_last(f->file));
}

void stack_thread_put_place(const struct stack_thread *t, struct strbuf *out)
{
    uint32_t user = 0;

    if (t->n == 0)
        return;
    strbuf_puts(out, "in ");
    stack_frame_put(&t->frames[0], out);
    while (user < t->n && stack_frame_is_library(&t->frames[user]))
        user++;
    if (user == 0 || user == t->n || t->frames[0].line == 0)
        return;
    strbuf_puts(out, " called by ");
    stack_frame_put(&t->frames[user], out);
}

static void
thread_put(const struct stack_thread *t, const char *title, struct strbuf *out)
{
    strbuf_printf(out, "  %s\n", title);
    for (uint32_t i = 0; i < t->n && i < STACK_SHOWN_MAX; i++) {
        strbuf_puts(out, "    ");
        stack_frame_put(&t->frames[i], out);
        strbuf_putc(out, '\n');
    }
    if (t->n > STACK_SHOWN_MAX)
        strbuf_printf(out, "    ... %u more\n", t->n - STACK_SHOWN_MAX);
    else if (t->n == 0)
        strbuf_puts(out, "    no Python code\n");
}

/* Down to the interpreter, whose own calls are shown as Python code. */
static uint32_t native_shown(const struct stack_dump *d)
{
    const struct stack_thread *t = stacks_main(d);

    if (t && t->n > 0 && stack_frame_is_runtime(&t->frames[0]))
        return 0;
    for (uint32_t i = 0; d->n_threads > 0 && i < d->native.n; i++)
        if (strncmp(d->native.frames[i].file, "python", 6) == 0
            || strncmp(d->native.frames[i].file, "libpython", 9) == 0)
            return i + 1;
    return d->native.n;
}

void stacks_put(const struct stack_dump *d, struct strbuf *out)
{
    const struct stack_thread *main_thread = stacks_main(d);
    struct stack_thread native = d->native;

    if (main_thread)
        thread_put(main_thread, "main thread", out);
    for (uint32_t i = 0; i < d->n_threads; i++)
        if (&d->threads[i] != main_thread)
            thread_put(&d->threads[i], "another thread", out);
    native.n = native_shown(d);
    if (native.n > 0)
        thread_put(&native, "main thread, native code", out);
}

void ranks_put(const uint32_t *ranks, size_t n, struct strbuf *out)
{
    for (size_t i = 0; i < n;) {
        size_t end = i + 1;

        while (end < n && ranks[end] == ranks[end - 1] + 1)
            end++;
        strbuf_printf(out, "%s%u", i ? ", " : "", ranks[i]);
        if (end - i > 1)
            strbuf_printf(out, "%s%u", end - i > 2 ? "-" : ", ", ranks[end - 1]);
        i = end;
    }
}

static int stack_text_compare(const void *a, const void *b)
{
    const struct stack_text *x = a, *y = b;
    int text = strcmp(x->text, y->text);

    if (text != 0)
        return text;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

struct stack_group {
    size_t from, to; /* of the sorted texts */
    uint32_t rank;   /* the lowest */
};

static int stack_group_compare(const void *a, const void *b)
{
    const struct stack_group *x = a, *y = b;

    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

void stacks_group(struct stack_text *v, size_t n, struct strbuf *out)
{
    AUTOFREE struct stack_group *groups = mem_calloc(n + 1, sizeof(*groups));
    AUTOFREE uint32_t *ranks = mem_calloc(n + 1, sizeof(*ranks));
    size_t n_groups = 0;

    if (!groups || !ranks) {
        out->status = -ENOMEM;
        return;
    }
    qsort(v, n, sizeof(*v), stack_text_compare);
    for (size_t i = 0; i < n; i++) {
        ranks[i] = v[i].rank;
        if (i == 0 || strcmp(v[i].text, v[i - 1].text) != 0)
            groups[n_groups++] = (struct stack_group){i, i, v[i].rank};
        groups[n_groups - 1].to = i + 1;
    }
    qsort(groups, n_groups, sizeof(*groups), stack_group_compare);
    for (size_t g = 0; g < n_groups; g++) {
        size_t count = groups[g].to - groups[g].from;

        strbuf_puts(out, count == 1 ? "rank " : "ranks ");
        ranks_put(ranks + groups[g].from, count, out);
        strbuf_printf(out, ":\n%s", v[groups[g].from].text);
    }
}
