#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ptx.py FILE PTXAS ARCH...: assembles the PTX of a kernel image (runtime/backend/nccl/image.h) or of a script.

A script (*.py) has it in bytes between three quotes.

PTXAS is of an older CUDA than the compiler that made the image, as a driver's own is. Exit code 1, and lines that
say why: it does not assemble for an ARCH ("sm_70"), or a kernel keeps more in memory than three of a
thread's registers: an old assembler may do that where the compiler's own does not.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

MAX_SPILL = 12  # bytes a thread


def texts_of(path: Path) -> list[bytes]:
    """The PTX in a file; ValueError: there is none."""
    content = path.read_bytes()
    if path.suffix != ".py":
        return [ptx_of(content)]
    texts = re.findall(rb'b"""(\.version.*?)"""', content, re.DOTALL)
    if not texts:
        raise ValueError("the script has no PTX")
    return texts


def ptx_of(image: bytes) -> bytes:
    """The PTX in an image; ValueError: there is none."""
    magic, _version, n = struct.unpack_from("<4sII", image)
    if magic != b"HVDK":
        raise ValueError("no kernel image")
    for i in range(n):
        _sm, kind, offset, size = struct.unpack_from("<IIQQ", image, 16 + 24 * i)
        if kind == 1:
            return image[offset : offset + size].rstrip(b"\0")
    raise ValueError("the image has no PTX")


def assemble(ptxas: str, arch: str, ptx: Path) -> list[str]:
    """What is wrong, a line each."""
    done = subprocess.run(
        [ptxas, "-v", "-arch", arch, str(ptx), "-o", "/dev/null"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if done.returncode:
        return done.stderr.splitlines()[:10]
    spills = re.findall(r"Function properties for (\w+)\s+.*?, (\d+) bytes spill stores", done.stderr)
    if not spills:
        return ["it says nothing of spills"]
    return [f"{name} spills {n} bytes" for name, n in spills if int(n) > MAX_SPILL]


def main() -> int:
    file, ptxas, *archs = sys.argv[1:]
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        ptx = Path(folder) / "kernels.ptx"
        for text in texts_of(Path(file)):
            ptx.write_bytes(text)
            for arch in archs:
                wrong = assemble(ptxas, arch, ptx)
                for line in wrong:
                    print(f"# {arch}: {line}")
                failed = failed or bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
