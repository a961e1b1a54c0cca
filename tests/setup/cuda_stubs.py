# SPDX-License-Identifier: Apache-2.0
"""Replaces CUDA's libraries for the torch of an environment; run it with that environment's Python.

PyPI has no CPU-only torch for Linux, and the CUDA libraries that its wheel needs are 2 GB of
downloads for tests that use no GPU. So torch is installed without its dependencies, and this program
creates each missing library: with its soname and the symbols and versions that torch's libraries need.
Every function returns 100 (cudaErrorNoDevice), those that return the text of an error a text.
"""

import re
import subprocess
import sysconfig
import tempfile
from pathlib import Path

SYSTEM = [Path(p) for p in ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64")]
CUDA = re.compile(
    r"^(nccl|cudnn|cufft|cusparse|cublas|nvrtc|cuda|cupti|cuFile|nvshmem|cusolver|__cuda|nvtx|nvJit"
    r"|_Z.*nvshmem|cu[A-Z])"
)
TEXT = re.compile(r"Get(Error|Status)(String|Name)$")  # cudaGetErrorString, cublasGetStatusString


def readelf(option, library):
    command = ["readelf", "-W", option, library]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def version_files(library):
    """{symbol version: library it comes from}"""
    files = {}
    current = None
    for line in readelf("-V", library).splitlines():
        if m := re.search(r"File: (\S+)", line):
            current = m[1]
        if (m := re.search(r"Name: (\S+)\s+Flags", line)) and current:
            files[m[1]] = current
    return files


def wanted_symbols(libraries, missing):
    """{library: {version or "": {(symbol, type)}}} of what the missing libraries must have."""
    wanted = {name: {} for name in missing}
    unversioned, defined = set(), set()
    for library in libraries:
        files = version_files(library)
        for line in readelf("--dyn-syms", library).splitlines():
            fields = line.split()
            if len(fields) < 8 or not fields[0].rstrip(":").isdigit():
                continue
            name, _, version = fields[7].partition("@")
            version = version.lstrip("@")
            if fields[6] != "UND":
                defined.add(name)
            elif files.get(version) in wanted:
                wanted[files[version]].setdefault(version, set()).add((name, fields[3]))
            elif not version and CUDA.match(name):
                unversioned.add((name, fields[3]))
    left = {(n, t) for n, t in unversioned if n not in defined}
    if left:  # of unknown origin: any library that is loaded will do
        wanted.setdefault(sorted(missing)[0], {}).setdefault("", set()).update(left)
    return wanted


def make(target, versions):
    with tempfile.TemporaryDirectory() as directory:
        source, script = Path(directory) / "s.S", Path(directory) / "v.map"
        text = [".text", 'stub: .asciz "no CUDA here"']
        for symbols in versions.values():
            for name, kind in sorted(symbols):
                if kind == "OBJECT":
                    text += [".data", f".globl {name}", f".type {name},@object", f".size {name},4096"]
                    text += [f"{name}: .zero 4096", ".text"]
                else:
                    text += [
                        f".globl {name}",
                        f".type {name},@function",
                        f"{name}:",
                        "lea stub(%rip),%rax" if TEXT.search(name) else "mov $100,%eax",
                        "ret",
                    ]
        source.write_text("\n".join(text) + "\n")
        command = ["gcc", "-shared", "-nostdlib", f"-Wl,-soname,{target.name}", "-o", target, source]
        named = {v: s for v, s in versions.items() if v}
        if named:
            lines = [
                f"{v} {{ global: {' '.join(f'{n};' for n, _ in sorted(s))} }};" for v, s in named.items()
            ]
            script.write_text("\n".join(lines) + "\n")
            command.append(f"-Wl,--version-script={script}")
        subprocess.run(command, check=True)


def main():
    target = Path(sysconfig.get_path("purelib")) / "torch/lib"
    libraries = sorted(target.glob("*.so*"))
    have = {p.name for p in libraries}
    missing = set()
    for library in libraries:
        for name in re.findall(r"NEEDED.*\[(.*?)\]", readelf("-d", library)):
            if name not in have and not any((d / name).exists() for d in SYSTEM):
                missing.add(name)
    for name, versions in wanted_symbols(libraries, missing - {"libcuda.so.1"}).items():
        make(target / name, versions)
    print(f"{len(missing)} libraries stubbed in {target}")


if __name__ == "__main__":
    main()
