/* SPDX-License-Identifier: Apache-2.0 */
/* address -> /proc/PID/maps: file and offset -> program header: address in the file
 * -> .symtab, or .dynsym where the file is stripped: the function that contains it.
 *
 * Files are read and not mapped, since one that shrinks would be a SIGBUS in the agent,
 * and every number in them is checked. An address in a function without a symbol has no
 * name: the nearest symbol before it would be another function's. Only files of 64 bits
 * are read. Called by examine.c, in a thread of its own. */
#include "runtime/launch/symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/launch/core/proc_text.h"

enum {
    SECTIONS_MAX = 512,
    SEGMENTS_MAX = 64,
    SYMBOLS_A_READ = 2048,
    NAME_MAX_BYTES = 160
};
#define MAPS_MAX_BYTES (8u << 20)
#define SYMBOLS_MAX    (1u << 22)

static bool file_read_at(int fd, uint64_t at, void *p, size_t n)
{
    return at <= INT64_MAX && pread(fd, p, n, (off_t)at) == (ssize_t)n;
}

/* The address that a place of the file has before it is moved; UINT64_MAX: unknown. */
static uint64_t elf_address(int fd, const Elf64_Ehdr *head, uint64_t offset)
{
    for (unsigned i = 0; i < head->e_phnum && i < SEGMENTS_MAX; i++) {
        Elf64_Phdr p;

        if (!file_read_at(fd, head->e_phoff + i * sizeof(p), &p, sizeof(p)))
            break;
        if (p.p_type == PT_LOAD && offset >= p.p_offset
            && offset - p.p_offset < p.p_filesz)
            return p.p_vaddr + (offset - p.p_offset);
    }
    return UINT64_MAX;
}

/* The table of symbols and its names; false: there is none. */
static bool
elf_find_symbols(int fd, const Elf64_Ehdr *head, Elf64_Shdr *ret, Elf64_Shdr *ret_names)
{
    bool has = false;

    for (unsigned i = 0; i < head->e_shnum && i < SECTIONS_MAX; i++) {
        Elf64_Shdr s;

        if (!file_read_at(fd, head->e_shoff + i * sizeof(s), &s, sizeof(s)))
            return false;
        if (s.sh_type != SHT_SYMTAB && (s.sh_type != SHT_DYNSYM || has))
            continue;
        if (s.sh_entsize != sizeof(Elf64_Sym) || s.sh_link >= head->e_shnum)
            continue;
        *ret = s;
        has = true;
    }
    return has
           && file_read_at(fd, head->e_shoff + ret->sh_link * sizeof(*ret_names),
                           ret_names, sizeof(*ret_names));
}

/* The place of the name in the names; false: no function contains the address. */
static bool
elf_find_name(int fd, const Elf64_Shdr *table, uint64_t address, uint64_t *ret)
{
    AUTOFREE Elf64_Sym *v = mem_calloc(SYMBOLS_A_READ, sizeof(*v));
    uint64_t n = table->sh_size / sizeof(*v);

    if (n > SYMBOLS_MAX || !v)
        return false;
    for (uint64_t at = 0; at < n; at += SYMBOLS_A_READ) {
        size_t k = n - at < SYMBOLS_A_READ ? (size_t)(n - at) : SYMBOLS_A_READ;

        if (!file_read_at(fd, table->sh_offset + at * sizeof(*v), v, k * sizeof(*v)))
            return false;
        for (size_t i = 0; i < k; i++)
            if (ELF64_ST_TYPE(v[i].st_info) == STT_FUNC && v[i].st_shndx != SHN_UNDEF
                && address >= v[i].st_value && address - v[i].st_value < v[i].st_size) {
                *ret = v[i].st_name;
                return true;
            }
    }
    return false;
}

/* "" if it is not known. */
static void elf_name(int fd, uint64_t offset, char ret[NAME_MAX_BYTES])
{
    Elf64_Shdr symbols, names;
    Elf64_Ehdr head;
    uint64_t address, at;
    ssize_t n;

    ret[0] = '\0';
    if (!file_read_at(fd, 0, &head, sizeof(head))
        || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0
        || head.e_ident[EI_CLASS] != ELFCLASS64)
        return;
    address = elf_address(fd, &head, offset);
    if (address == UINT64_MAX || !elf_find_symbols(fd, &head, &symbols, &names)
        || !elf_find_name(fd, &symbols, address, &at) || at >= names.sh_size)
        return;
    n = pread(fd, ret, NAME_MAX_BYTES - 1, (off_t)(names.sh_offset + at));
    ret[n > 0 ? n : 0] = '\0';
}

/* The file as the process sees it, which may be in another container. */
static int mapping_open(uint32_t pid, const struct proc_mapping *m)
{
    char path[sizeof(m->path) + 40];
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK, fd;

    (void)snprintf(path, sizeof(path), "/proc/%u/root%s", pid, m->path);
    fd = open(path, flags);
    return fd >= 0 ? fd : open(m->path, flags);
}

static void
symbols_put(uint32_t pid, const char *maps, uint64_t address, struct strbuf *out)
{
    const char *slash;
    char name[NAME_MAX_BYTES] = "";
    struct proc_mapping m;

    strbuf_puts(out, "    ");
    if (!proc_text_mapping(maps, address, &m)) {
        strbuf_puts(out, *maps ? "(generated code)\n" : "(unknown)\n");
        return;
    }
    CLEANUP(fd_close) int fd = mapping_open(pid, &m);
    if (fd >= 0)
        elf_name(fd, address - m.start + m.offset, name);
    slash = strrchr(m.path, '/');
    strbuf_printf(out, "%s%s(%s)\n", name, name[0] ? " " : "", slash + 1);
}

void symbols_name_dump(uint32_t pid, const char *text, struct strbuf *out)
{
    AUTOFREE char *maps = NULL;
    char path[32];
    bool is_first = true;
    size_t n;

    (void)snprintf(path, sizeof(path), "/proc/%u/maps", pid);
    if (fd_read_file(path, MAPS_MAX_BYTES, &maps, &n, NULL) < 0)
        maps = mem_strdup("");
    while (*text && maps) {
        n = strcspn(text, "\n");
        if (strncmp(text, "0x", 2) == 0) {
            uint64_t address = strtoull(text, NULL, 16);

            /* A return address is behind its call, which may be a function's last. */
            symbols_put(pid, maps, is_first || address == 0 ? address : address - 1,
                        out);
            is_first = false;
        } else {
            strbuf_add(out, text, n);
            strbuf_putc(out, '\n');
        }
        text += n + (text[n] == '\n');
    }
}
