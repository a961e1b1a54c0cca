#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""resources.py IMAGE: what each kernel of the image takes on each GPU: registers, shared and local memory.

A line a kernel and GPU: "sm_90 hvd_copy 43 0 0", as cuobjdump --dump-resource-usage says it. Read off the
cubins, which are ELF: shared memory is the size of .nv.shared.KERNEL, registers and stack frame are attributes
0x2f and 0x11 of .nv.info, by the symbol's number. IMAGE: kernels.bin, or a library that it is in.
"""

import struct
import sys
from pathlib import Path

FRAME_SIZE, REGISTERS = 0x11, 0x2F
THREADS = 256


def cubins(data):
    """(sm, ELF) of the first image in data."""
    at = data.find(b"HVDK\1\0\0\0")
    if at < 0:
        sys.exit("resources.py: there is no image of kernels")
    n = struct.unpack_from("<I", data, at + 8)[0]
    for i in range(n):
        sm, kind, offset, size = struct.unpack_from("<IIQQ", data, at + 16 + 24 * i)
        if kind == 0:
            yield sm, data[at + offset : at + offset + size]


def text_at(data, at):
    return data[at : data.index(b"\0", at)].decode()


def sections(elf):
    offset, size, n, names = (
        struct.unpack_from("<Q", elf, 40)[0],
        *struct.unpack_from("<HHH", elf, 58),
    )
    rows = [struct.unpack_from("<IIQQQQIIQQ", elf, offset + size * i) for i in range(n)]
    base = rows[names][4]
    return {text_at(elf, base + row[0]): row for row in rows}


def attributes(elf, rows):
    """{(attribute, kernel): value}"""
    symbols, strings = rows[".symtab"], rows[".strtab"][4]
    _, _, _, _, at, size, *_ = rows[".nv.info"]
    end, found = at + size, {}
    while at < end:
        form, attribute, length = struct.unpack_from("<BBH", elf, at)
        at += 4
        if form != 4:  # the value is in the header
            continue
        if attribute in (FRAME_SIZE, REGISTERS):
            symbol, value = struct.unpack_from("<II", elf, at)
            name = struct.unpack_from("<I", elf, symbols[4] + 24 * symbol)[0]
            found[attribute, text_at(elf, strings + name)] = value
        at += length
    return found


def usage(data):
    """(sm, kernel, registers, shared, frame)."""
    for sm, elf in cubins(data):
        rows = sections(elf)
        found = attributes(elf, rows)
        for name in rows:
            if name.startswith(".text.hvd_"):
                kernel = name[len(".text.") :]
                shared = rows.get(f".nv.shared.{kernel}", (0,) * 6)[5]
                yield sm, kernel, found[REGISTERS, kernel], shared, found.get((FRAME_SIZE, kernel), 0)


def too_much(sm, kernel, registers, shared, frame):
    """What a launch of 256 threads must not take, and what moves, which wait for memory, should not."""
    least = 3 if kernel.startswith(("hvd_move", "hvd_copy", "hvd_scan")) else 1
    if registers * THREADS * least > 65536:
        return f"{kernel} on sm_{sm}: {registers} registers, of which {least} blocks are to run at once"
    if shared > 48 << 10:
        return f"{kernel} on sm_{sm}: {shared} bytes of shared memory, 48 KiB is what all GPUs have"
    if frame > 16:
        return f"{kernel} on sm_{sm}: {frame} bytes of each thread are in local memory"
    return None


def main():
    for sm, *row in usage(Path(sys.argv[1]).read_bytes()):
        print(f"sm_{sm}", *row)


if __name__ == "__main__":
    main()
