#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the image of the CUDA kernels: compile.py OUT [--cache DIR] [--nvrtc COMMAND]

The text is kernels.cu with its own headers put in. It is compiled to a cubin for each of ARCHS and to PTX
of the oldest one, which drivers compile for GPUs that came later. No GPU is needed, nor a driver.

  $KERNELS  auto (default)  nvcc of a CUDA Toolkit 11 or 12 ($CUDA_HOME/bin, PATH), and NVRTC for archs
                            that it does not know; NVRTC where no such Toolkit is. A later Toolkit's
                            binaries need a driver of its time: it comes last, if NVRTC cannot be had
            nvrtc, nvcc     that one alone, whatever its version
            none            an image without kernels
  COMMAND   prints the folder of a virtual environment with the package nvidia-cuda-nvrtc-cu12; run only
            when NVRTC is needed
  DIR       keeps images by hash of the text, the compilers and the options

The image (image.c reads it), little-endian, data at multiples of 16 bytes:
  "HVDK", u32 1, u32 n, u32 0, n x {u32 arch, u32 kind: 0 cubin, 1 PTX, u64 offset, u64 bytes}, data
PTX ends in NUL, which is counted.
"""

import argparse
import concurrent.futures
import ctypes
import fcntl
import glob
import hashlib
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = "runtime/backend/nccl/kernels/kernels.cu"
ARCHS = (70, 75, 80, 86, 89, 90, 100, 120)
# One rounding an operation, as the CPU form has it.
OPTIONS = ["--fmad=false", "--std=c++14"]
FORMAT = 1
# The least driver is that of CUDA 11.0, whose PTX is 7.0. What a newer compiler writes is declared as that
# if it uses nothing later: these words were all there by 7.0.
PTX_VERSION = "7.0"
PTX_LINES = (
    "abs add and atom bar bfe bfi bra brev clz copysign cvt cvta div ex2 fma ld lg2 mad max min",
    "mov mul neg not or popc prmt rcp red rem ret rsqrt sad selp set setp shf shl shr slct sqrt",
    "st sub xor .address_size .align .entry .extern .file .func .global .loc .maxntid",
    ".minnctapersm .param .pragma .reg .section .shared .target .version .visible .weak",
)
PTX_WORDS = frozenset(word for line in PTX_LINES for word in line.split())


class Failed(Exception):
    """The error message for the user who runs make."""


def text_of(path, seen=None):
    """The file with its own includes put in, each once."""
    seen = set() if seen is None else seen
    seen.add(path)
    lines = []
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            m = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
            if m is None:
                lines.append(line)
            elif m.group(1) not in seen:
                lines += [
                    f'#line 1 "{m.group(1)}"\n',
                    text_of(m.group(1), seen),
                    f'#line {number + 1} "{path}"\n',
                ]
    return "".join(lines)


class Nvrtc:
    """The compiler as a library. https://docs.nvidia.com/cuda/nvrtc"""

    def __init__(self, folder):
        where = "lib/python*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.*"
        found = glob.glob(os.path.join(folder, where))
        if not found:
            raise Failed(f"no libnvrtc.so in {folder}")
        self.lib = ctypes.CDLL(found[0])
        self.lib.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor, n = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        self.call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.call("nvrtcGetNumSupportedArchs", ctypes.byref(n))
        archs = (ctypes.c_int * n.value)()
        self.call("nvrtcGetSupportedArchs", archs)
        self.archs = tuple(archs)
        self.name = f"NVRTC {major.value}.{minor.value}"

    def call(self, name, *args):
        status = getattr(self.lib, name)(*args)
        if status != 0:
            raise Failed(f"{name}: {self.lib.nvrtcGetErrorString(status).decode()}")

    def bytes_of(self, what, program):
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, data)
        return data.raw

    def compile(self, text, arch, kind):
        program = ctypes.c_void_p()
        self.call("nvrtcCreateProgram", ctypes.byref(program), text.encode(), ROOT.encode(), 0, None, None)
        try:
            wanted = f"--gpu-architecture={'sm' if kind == 0 else 'compute'}_{arch}"
            options = [o.encode() for o in [*OPTIONS, wanted]]
            array = (ctypes.c_char_p * len(options))(*options)
            status = self.lib.nvrtcCompileProgram(program, len(options), array)
            log = self.bytes_of("ProgramLog", program).rstrip(b"\0\n").decode()
            # the one warning that is no news: this compiler is the last one that knows the old GPUs
            log = "\n".join(line for line in log.splitlines() if "deprecated" not in line)
            if log:
                print(log, file=sys.stderr)
            if status != 0:
                raise Failed(f"{self.name} does not compile the kernels for sm_{arch}")
            return self.bytes_of("CUBIN" if kind == 0 else "PTX", program)
        finally:
            self.lib.nvrtcDestroyProgram(ctypes.byref(program))


class Nvcc:
    """The compiler of a CUDA Toolkit."""

    def __init__(self, path):
        self.path = path
        version = self.run("--version")
        m = re.search(r"release (\d+)\.(\d+)", version)
        if m is None:
            raise Failed(f"{path} --version prints no release")
        self.major = int(m.group(1))
        self.name = "nvcc " + version.strip().splitlines()[-1]
        self.archs = tuple(int(a) for a in re.findall(r"sm_(\d+)", self.run("--list-gpu-code")))

    def run(self, *args):
        done = subprocess.run([self.path, *args], capture_output=True, check=False)
        if done.returncode != 0:
            sys.stderr.write(done.stderr.decode(errors="replace"))
            raise Failed(f"{self.path} {' '.join(args)} failed")
        return done.stdout.decode()

    def compile(self, text, arch, kind):
        with tempfile.TemporaryDirectory() as folder:
            source, out = os.path.join(folder, "kernels.cu"), os.path.join(folder, "out")
            with open(source, "w", encoding="utf-8") as f:
                f.write(text)
            how = ["-cubin", f"-arch=sm_{arch}"] if kind == 0 else ["-ptx", f"-arch=compute_{arch}"]
            self.run(*OPTIONS, *how, "-Wno-deprecated-gpu-targets", "-o", out, source)
            with open(out, "rb") as f:
                data = f.read()
            return data if kind == 0 else data + b"\0"


def find_nvcc():
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    path = os.path.join(home, "bin/nvcc") if home else shutil.which("nvcc")
    return Nvcc(path) if path and os.access(path, os.X_OK) else None


def find_nvrtc(command):
    done = subprocess.run(shlex.split(command or "false"), stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise Failed(
            "the CUDA kernels need a compiler: a CUDA Toolkit (CUDA_HOME), or the package "
            "nvidia-cuda-nvrtc-cu12, which could not be had; KERNELS=none builds without them"
        )
    return Nvrtc(done.stdout.decode().strip())


def choose(how, command):
    """[(arch, kind, compiler)] and the compilers."""
    nvcc = find_nvcc() if how in ("auto", "nvcc") else None
    if how == "nvcc" and nvcc is None:
        raise Failed("KERNELS=nvcc: there is no nvcc in CUDA_HOME or PATH")
    compilers = [nvcc] if nvcc and (how == "nvcc" or nvcc.major <= 12) else []
    if how == "nvrtc" or (how == "auto" and not (compilers and set(ARCHS) <= set(nvcc.archs))):
        try:
            compilers.append(find_nvrtc(command))
        except Failed:
            if nvcc is None:
                raise
            compilers = [nvcc]
            print(
                f"compile.py: NVRTC could not be had: all kernels are by {nvcc.name}, for the GPUs that it"
                f" knows and drivers for CUDA {nvcc.major}",
                file=sys.stderr,
            )
    known = [a for a in ARCHS if any(a in c.archs for c in compilers)]
    jobs = [(a, 0, next(c for c in compilers if a in c.archs)) for a in known]
    oldest = jobs[0]
    return [*jobs, (oldest[0], 1, oldest[2])], compilers


def lowered(ptx):
    """PTX that an older driver takes too."""
    text = re.sub(r"//[^\n]*", "", ptx.decode())
    words = set(re.findall(r"(?:^|[;{}:\n])\s*(?:@!?%\w+\s+)?(\.?[a-z][a-z0-9_]*)", text))
    unknown = sorted(words - PTX_WORDS)
    if unknown:
        raise Failed(f"is this in PTX {PTX_VERSION}? If so, add it to PTX_LINES: {' '.join(unknown)}")
    return re.sub(rb"^\.version \d+\.\d+", b".version " + PTX_VERSION.encode(), ptx, count=1, flags=re.M)


def image_of(parts):
    at = 16 + 24 * len(parts)
    head, body = struct.pack("<4sIII", b"HVDK", FORMAT, len(parts), 0), b""
    for arch, kind, data in parts:
        body += b"\0" * (-(at + len(body)) % 16)
        head += struct.pack("<IIQQ", arch, kind, at + len(body), len(data))
        body += data
    return head + body


def build(how, command, cache):
    if how == "none":
        return image_of([])
    text = text_of(ROOT)
    jobs, compilers = choose(how, command)
    key = hashlib.sha256(
        repr(
            (
                FORMAT,
                OPTIONS,
                PTX_VERSION,
                [(a, k, c.name) for a, k, c in jobs],
                [c.name for c in compilers],
                text,
            )
        ).encode()
    ).hexdigest()[:24]
    if cache is None:
        return compiled(jobs, text)
    os.makedirs(cache, exist_ok=True)
    kept = os.path.join(cache, key + ".bin")
    with open(os.path.join(cache, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(kept):
            write(kept, compiled(jobs, text))
        with open(kept, "rb") as f:
            return f.read()


def compiled(jobs, text):
    def one(job):
        arch, kind, compiler = job
        data = compiler.compile(text, arch, kind)
        return arch, kind, lowered(data) if kind == 1 else data

    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return image_of(list(pool.map(one, jobs)))


def write(path, data):
    """Whole or not at all, also where two makes, of two variants, do it at once."""
    partial = f"{path}.{os.getpid()}.new"
    with open(partial, "wb") as f:
        f.write(data)
    os.replace(partial, path)


def main():
    parser = argparse.ArgumentParser(description="Makes the image of the CUDA kernels.")
    parser.add_argument("out")
    parser.add_argument("--cache")
    parser.add_argument("--nvrtc", metavar="COMMAND")
    args = parser.parse_args()
    how = os.environ.get("KERNELS") or "auto"
    try:
        if how not in ("auto", "nvrtc", "nvcc", "none"):
            raise Failed(f"KERNELS={how}: it is auto, nvrtc, nvcc or none")
        write(args.out, build(how, args.nvrtc, args.cache))
    except Failed as e:
        sys.exit(f"compile.py: {e}")


if __name__ == "__main__":
    main()
