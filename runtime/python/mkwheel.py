# SPDX-License-Identifier: Apache-2.0
"""mkwheel.py PYTHON_TREE BIN_DIR VERSION WHEEL: packs the staged tree into a wheel.

The same input gives the same bytes: sorted names, one fixed time stamp, fixed modes. The launchers
horovodrun and perseusrun, and hvd-gpu, are included as scripts when BIN_DIR has them.
"""

import base64
import hashlib
import os
import sys
import zipfile

TAG = "cp38-abi3-manylinux2014_x86_64"
EPOCH = (2020, 1, 1, 0, 0, 0)
PROGRAMS = ("horovodrun", "perseusrun", "hvd-gpu")

METADATA = """\
Metadata-Version: 2.1
Name: ringmaster-horovod
Version: {version}
Summary: Horovod's Python API over Ringmaster's collective runtime
License: Apache-2.0
Requires-Python: >=3.8
Requires-Dist: cloudpickle
Description-Content-Type: text/plain

import horovod.torch as hvd, without a compiler, MPI or ssh. Do not install beside horovod: both own
the package name horovod.
"""

WHEEL = """\
Wheel-Version: 1.0
Generator: ringmaster {version}
Root-Is-Purelib: false
Tag: {tag}
"""


# The newest torch looks up "hvd" in the second; from 2.5 on, torch loads the first at each import.
ENTRY_POINTS = """\
[torch.backends]
hvd = _hvd.torch_backend:autoload

[torch.distributed.backends]
hvd = _hvd.torch_backend:register
"""


def collect(tree, bin_dir, version):
    """{name in the wheel: (bytes, mode)}"""
    files = {}
    for directory, subdirs, names in os.walk(tree):
        subdirs[:] = [d for d in subdirs if d != "__pycache__"]
        for name in names:
            path = os.path.join(directory, name)
            mode = 0o755 if name.endswith(".so") else 0o644
            with open(path, "rb") as f:
                files[os.path.relpath(path, tree)] = (f.read(), mode)
    for name in PROGRAMS:
        path = os.path.join(bin_dir, name)
        if os.path.exists(path):
            with open(path, "rb") as f:
                files[f"ringmaster_horovod-{version}.data/scripts/{name}"] = (f.read(), 0o755)
    info = f"ringmaster_horovod-{version}.dist-info"
    files[f"{info}/METADATA"] = (METADATA.format(version=version).encode(), 0o644)
    files[f"{info}/WHEEL"] = (WHEEL.format(version=version, tag=TAG).encode(), 0o644)
    files[f"{info}/entry_points.txt"] = (ENTRY_POINTS.encode(), 0o644)
    files[f"{info}/top_level.txt"] = (b"_hvd\nhorovod\nperseus\n", 0o644)
    return files, info


def record_of(files, info):
    lines = []
    for name in sorted(files):
        content = files[name][0]
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}")
    lines.append(f"{info}/RECORD,,")
    return ("\n".join(lines) + "\n").encode()


def main():
    tree, bin_dir, version, wheel = sys.argv[1:]
    files, info = collect(tree, bin_dir, version)
    order = sorted(files)
    files[f"{info}/RECORD"] = (record_of(files, info), 0o644)
    partial = wheel + ".new"
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as z:
        for name in [*order, f"{info}/RECORD"]:
            content, mode = files[name]
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.create_system = 3
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(entry, content)
    os.replace(partial, wheel)
    print(wheel)


if __name__ == "__main__":
    main()
