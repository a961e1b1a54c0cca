/* SPDX-License-Identifier: Apache-2.0 */
/* offset -> program header: address in the file -> .symtab, or .dynsym where the file is
 * stripped: the function that contains it.
 *
 * Files are read and not mapped, since one that shrinks would be a SIGBUS in the agent,
 * and every number in them is checked. An address in a function without a symbol has no
 * name: the nearest symbol before it would be another function's. One pass over the
 * table serves all places: libtorch_cpu.so has 10 MB of symbols.
 *
 * Called by symbols.c. */
#include "runtime/launch/elf_names.h"

#include <elf.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/mem.h"

enum { SECTIONS_MAX = 512, SEGMENTS_MAX = 64, SYMBOLS_A_READ = 2048 };
#define SYMBOLS_MAX (1u << 22)
#define UNKNOWN     UINT64_MAX

static bool file_read_at(int fd, uint64_t at, void *p, size_t n)
{
    return at <= INT64_MAX && pread(fd, p, n, (off_t)at) == (ssize_t)n;
}

/* The address that a place of the file has before it is moved, or UNKNOWN. */
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
    return UNKNOWN;
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

static void elf_read_name(int fd, const Elf64_Shdr *names, uint64_t at, char *ret)
{
    ssize_t n = at < names->sh_size
                    ? pread(fd, ret, ELF_NAME_BYTES - 1, (off_t)(names->sh_offset + at))
                    : 0;

    ret[n > 0 ? n : 0] = '\0';
}

/* Sets the names of the places that this symbol contains. */
static void elf_take_symbol(int fd,
                            const Elf64_Shdr *names,
                            const Elf64_Sym *s,
                            const uint64_t *addresses,
                            struct elf_place *v,
                            size_t n)
{
    if (ELF64_ST_TYPE(s->st_info) != STT_FUNC || s->st_shndx == SHN_UNDEF)
        return;
    for (size_t i = 0; i < n; i++)
        if (addresses[i] >= s->st_value && addresses[i] - s->st_value < s->st_size
            && addresses[i] != UNKNOWN && !v[i].name[0])
            elf_read_name(fd, names, s->st_name, v[i].name);
}

void elf_name_places(int fd, struct elf_place *v, size_t n)
{
    AUTOFREE Elf64_Sym *symbols = mem_calloc(SYMBOLS_A_READ, sizeof(*symbols));
    AUTOFREE uint64_t *addresses = mem_calloc(n, sizeof(*addresses));
    Elf64_Shdr table, names;
    Elf64_Ehdr head;
    uint64_t n_symbols;

    for (size_t i = 0; i < n; i++)
        v[i].name[0] = '\0';
    if (!symbols || !addresses || !file_read_at(fd, 0, &head, sizeof(head))
        || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0
        || head.e_ident[EI_CLASS] != ELFCLASS64
        || !elf_find_symbols(fd, &head, &table, &names))
        return;
    for (size_t i = 0; i < n; i++)
        addresses[i] = elf_address(fd, &head, v[i].offset);
    n_symbols = table.sh_size / sizeof(*symbols);
    if (n_symbols > SYMBOLS_MAX)
        return;
    for (uint64_t at = 0; at < n_symbols; at += SYMBOLS_A_READ) {
        uint64_t left = n_symbols - at;
        size_t k = left < SYMBOLS_A_READ ? (size_t)left : SYMBOLS_A_READ;

        if (!file_read_at(fd, table.sh_offset + at * sizeof(*symbols), symbols,
                          k * sizeof(*symbols)))
            return;
        for (size_t i = 0; i < k; i++)
            elf_take_symbol(fd, &names, &symbols[i], addresses, v, n);
    }
}
