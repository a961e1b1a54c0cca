# SPDX-License-Identifier: Apache-2.0
"""The bills of materials list the content of the images; programs find NCCL in the image that has it."""

from __future__ import annotations

import ctypes
import hashlib
import json
import re
import tarfile
import tempfile
from pathlib import Path

from api import expect
from common import BIN, MANIFESTS, ROOT, STAGE, run, suite

IMAGES = MANIFESTS / "images"


@suite.test
def a_bill_of_materials_has_each_file_and_its_package() -> None:
    operator = BIN / "hvd-operator"
    library = re.findall(r"(/\S*libjansson\S*)", run("ldd", str(operator)))[0]
    with tempfile.TemporaryDirectory() as d:
        image, ours = f"{d}/i.tar", Path(d) / "passwd"
        ours.write_text("a user of ours\n")
        files = {"usr/bin/hvd-operator": operator, library.lstrip("/"): Path(library), "etc/passwd": ours}
        args = [f"--file={src}=/{dest}" for dest, src in files.items()]
        run(str(IMAGES / "oci.py"), image, "localhost/i:1", *args)
        for out in ("a", "b"):
            run(str(IMAGES / "sbom.py"), image, "7.8", f"{d}/{out}")
        text = Path(f"{d}/a").read_text()
        expect(text == Path(f"{d}/b").read_text(), "the same bytes each time")
        digests = {name: hashlib.sha256(src.read_bytes()).hexdigest() for name, src in files.items()}
    bill = json.loads(text)
    told = {
        f["fileName"].removeprefix("./"): next(
            c["checksumValue"] for c in f["checksums"] if c["algorithm"] == "SHA256"
        )
        for f in bill["files"]
    }
    expect(told == digests, "each file with its digest", told, digests)
    names = {x["SPDXID"]: x.get("name") or x["fileName"] for x in bill["packages"] + bill["files"]}
    of = {
        names[r["relatedSpdxElement"]]: names[r["spdxElementId"]]
        for r in bill["relationships"]
        if r["relationshipType"] == "CONTAINS"
    }
    expect(of["./" + library.lstrip("/")] == "libjansson4", "Debian's is of its package", of)
    expect(of["./usr/bin/hvd-operator"] == of["./etc/passwd"] == "ringmaster", "the rest is ours", of)
    version = run("dpkg-query", "-W", "-f", "${Version}", "libjansson4")
    row = next(p for p in bill["packages"] if p["name"] == "libjansson4")
    expect(row["versionInfo"] == version, "with its version", row)
    ids = {x["SPDXID"] for x in bill["packages"] + bill["files"]} | {"SPDXRef-DOCUMENT"}
    loose = [r for r in bill["relationships"] if {r["spdxElementId"], r["relatedSpdxElement"]} - ids]
    expect(len(ids) == len(names) + 1 and not loose, "no name twice, none unknown", str(loose))


def unpack(archive: Path, folder: Path) -> Path:
    """The tree of the one layer of an image."""
    with tarfile.open(archive) as image:
        layers = [m for m in image.getmembers() if m.name.startswith("blobs/")]
        layer = max(layers, key=lambda m: m.size)
        with tarfile.open(fileobj=image.extractfile(layer)) as tree:
            tree.extractall(folder)
    return folder


ASK = """
import ctypes, json, sys
lib = ctypes.CDLL(sys.argv[1])
text = ctypes.create_string_buffer(65536)
lib.hvd_device_report(text, len(text))
print(json.loads(text.value)["nccl_path"])
"""


@suite.test
def programs_find_nccl_in_the_image_with_nccl() -> None:
    """Without a GPU: the library loads and answers. What ranks do with it needs one."""
    venv = run(str(ROOT / "tests/setup/venv.sh"), "nccl").strip()
    with tempfile.TemporaryDirectory() as d:
        run(str(IMAGES / "images.sh"), str(BIN / "hvd-operator"), str(STAGE), d, venv)
        top = unpack(Path(d) / "hvd-runtime-nccl.tar", Path(d) / "root") / "opt/ringmaster"
        plain = unpack(Path(d) / "hvd-runtime.tar", Path(d) / "plain") / "opt/ringmaster"
        expect(not (plain / "lib/nccl").exists(), "the usual image has none")
        expect("Redistribution" in (top / "lib/nccl/LICENSE.txt").read_text(), "its licence lies beside it")
        library, version = top / "lib/nccl/libnccl.so.2", ctypes.c_int()
        expect(ctypes.CDLL(str(library)).ncclGetVersion(ctypes.byref(version)) == 0, "it loads")
        number = f"{version.value // 10000}.{version.value // 100 % 100}.{version.value % 100}"
        told = dict(x.split(" ", 1) for x in run(str(top / "bin/hvd-gpu"), "info").splitlines())
        expect(told["nccl"] == number, "hvd-gpu says its version", told)
        expect(told["nccl-path"] == str(library), "and its path", told)
        for mine in ("lib", "python/_hvd"):
            path = run("/usr/bin/python3", "-c", ASK, str(top / mine / "libhvd.so")).strip()
            expect(path == str(library), f"{mine}/libhvd.so finds it", path)
            path = run("/usr/bin/python3", "-c", ASK, str(plain / mine / "libhvd.so")).strip()
            expect(path == "", f"{mine}/libhvd.so of the usual image does not", path)
        bill = json.loads((Path(d) / "hvd-runtime-nccl.spdx.json").read_text())
        row = next(p for p in bill["packages"] if p["name"] == "nvidia-nccl-cu12")
        expect(row["versionInfo"] == number, "the bill of materials has its package", row)
        names = {f["SPDXID"]: f["fileName"] for f in bill["files"]}
        links = [r for r in bill["relationships"] if r["spdxElementId"] == row["SPDXID"]]
        found = sorted(names[r["relatedSpdxElement"]].rpartition("/")[2] for r in links)
        expect(found == ["LICENSE.txt", "libnccl.so.2"], "with its files", found)
