/* SPDX-License-Identifier: Apache-2.0 */
/* Which functions of an ELF file contain given places. */
#ifndef RUNTIME_LAUNCH_ELF_NAMES_H
#define RUNTIME_LAUNCH_ELF_NAMES_H

#include <stddef.h>
#include <stdint.h>

#define ELF_NAME_BYTES 160

struct elf_place {
    uint64_t offset;           /* in the file, in bytes */
    char name[ELF_NAME_BYTES]; /* set: of the function; "": not known */
};

/* fd: a file of 64 bits, otherwise no name is known. It is read once, whatever n is.
 * May block. */
void elf_name_places(int fd, struct elf_place *v, size_t n);

#endif
