/* SPDX-License-Identifier: Apache-2.0 */
/* addresses of all dumps, sorted -> /proc/PID/maps: file and offset -> elf_names.h: name
 * -> the dumps again, with names. What hangs has the same stack in each dump.
 *
 * Called by examine.c, in a thread of its own. */
#include "runtime/launch/symbols.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"
#include "runtime/contract/stacks_file.h"
#include "runtime/launch/core/proc_text.h"
#include "runtime/launch/elf_names.h"

#define MAPS_MAX_BYTES (8u << 20)

struct symbol {
    uint64_t address;
    char text[ELF_NAME_BYTES + 260]; /* "futex_wait (libc.so.6)" */
};

struct symbols {
    uint32_t pid;
    char *maps;
    struct symbol v[SYMBOLS_MAX_ADDRESSES]; /* sorted, each address once */
    size_t n;
};

static int symbol_compare(const void *key, const void *element)
{
    const struct symbol *a = key, *b = element;

    return a->address < b->address ? -1 : a->address > b->address;
}

/* --- lines of a dump -------------------------------------------------------------- */

struct dump_line {
    const char *text; /* without its newline; n bytes */
    size_t n;
    bool is_address;
    uint64_t address; /* within the function that it is in */
};

/* The line at *p, and moves *p behind it. *is_first: no address came before. A return
 * address is behind its call, which may be a function's last instruction. */
static struct dump_line line_next(const char **p, bool *is_first)
{
    struct dump_line l = {.text = *p, .n = strcspn(*p, "\n")};

    l.is_address = strncmp(l.text, "0x", 2) == 0;
    if (l.is_address) {
        l.address = strtoull(l.text, NULL, 16);
        l.address -= !*is_first && l.address > 0;
        *is_first = false;
    }
    *p += l.n + (l.text[l.n] == '\n');
    return l;
}

static void symbols_add(struct symbols *s, const char *dump)
{
    bool is_first = true;

    while (*dump && s->n < SYMBOLS_MAX_ADDRESSES) {
        struct dump_line l = line_next(&dump, &is_first);
        size_t at = s->n;

        if (!l.is_address)
            continue;
        while (at > 0 && s->v[at - 1].address > l.address)
            at--;
        if (at > 0 && s->v[at - 1].address == l.address)
            continue;
        memmove(&s->v[at + 1], &s->v[at], (s->n++ - at) * sizeof(s->v[0]));
        s->v[at].address = l.address;
    }
}

static char *symbols_write(const struct symbols *s, const char *dump)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    bool is_first = true;

    strbuf_init(&out, 2 * STACKS_MAX_BYTES);
    while (*dump) {
        struct dump_line l = line_next(&dump, &is_first);
        const struct symbol key = {.address = l.address}, *found = NULL;

        if (l.is_address)
            found = bsearch(&key, s->v, s->n, sizeof(key), symbol_compare);
        if (found)
            strbuf_printf(&out, "    %s\n", found->text);
        else if (l.is_address)
            strbuf_puts(&out, "    (not named)\n");
        else
            strbuf_printf(&out, "%.*s\n", (int)l.n, l.text);
    }
    return strbuf_take(&out);
}

/* --- names ------------------------------------------------------------------------ */

/* The file as the process sees it, which may be in another container. */
static int mapping_open(uint32_t pid, const struct proc_mapping *m)
{
    char path[sizeof(m->path) + 40];
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK, fd;

    (void)snprintf(path, sizeof(path), "/proc/%u/root%s", pid, m->path);
    fd = open(path, flags);
    return fd >= 0 ? fd : open(m->path, flags);
}

/* Names v[0], which is in m, and those behind it that are in the same file. Returns how
 * many; 0: memory is out. */
static size_t symbols_name_file(const struct symbols *s,
                                struct symbol *v,
                                size_t n,
                                const struct proc_mapping *m)
{
    AUTOFREE struct elf_place *places = mem_calloc(n, sizeof(*places));
    CLEANUP(fd_close) int fd = -1;
    struct proc_mapping next = *m;
    size_t k = 0;

    if (!places)
        return 0;
    do {
        places[k].offset = v[k].address - next.start + next.offset;
        k++;
    } while (k < n && proc_text_mapping(s->maps, v[k].address, &next)
             && strcmp(next.path, m->path) == 0);
    fd = mapping_open(s->pid, m);
    if (fd >= 0)
        elf_name_places(fd, places, k);
    for (size_t i = 0; i < k; i++)
        (void)snprintf(v[i].text, sizeof(v[i].text), "%s%s(%s)", places[i].name,
                       places[i].name[0] ? " " : "", strrchr(m->path, '/') + 1);
    return k;
}

static void symbols_find_names(struct symbols *s)
{
    struct proc_mapping m;

    for (size_t i = 0, k; i < s->n; i += k) {
        k = 0;
        if (proc_text_mapping(s->maps, s->v[i].address, &m))
            k = symbols_name_file(s, &s->v[i], s->n - i, &m);
        if (k > 0)
            continue;
        (void)snprintf(s->v[i].text, sizeof(s->v[i].text), "%s",
                       *s->maps ? "(generated code)" : "(unknown)");
        k = 1;
    }
}

void symbols_name_dumps(uint32_t pid, char **dumps, size_t n)
{
    AUTOFREE struct symbols *s = mem_zalloc(sizeof(*s));
    AUTOFREE char *maps = NULL;
    char path[32];
    size_t n_bytes;

    (void)snprintf(path, sizeof(path), "/proc/%u/maps", pid);
    if (fd_read_file(path, MAPS_MAX_BYTES, &maps, &n_bytes, NULL) < 0)
        maps = mem_strdup("");
    if (!s || !maps)
        return;
    s->pid = pid;
    s->maps = maps;
    for (size_t i = 0; i < n; i++)
        if (dumps[i])
            symbols_add(s, dumps[i]);
    symbols_find_names(s);
    for (size_t i = 0; i < n; i++) {
        char *named = dumps[i] ? symbols_write(s, dumps[i]) : NULL;

        if (!named)
            continue;
        mem_free(dumps[i]);
        dumps[i] = named;
    }
}
