# SPDX-License-Identifier: Apache-2.0
"""What the images hold is told in their bills of materials."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from pathlib import Path

from api import expect
from common import BIN, MANIFESTS, run, suite

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
    expect(of["./usr/bin/hvd-operator"] == of["./etc/passwd"] == "ringmaster", "the others are ours", of)
    version = run("dpkg-query", "-W", "-f", "${Version}", "libjansson4")
    row = next(p for p in bill["packages"] if p["name"] == "libjansson4")
    expect(row["versionInfo"] == version, "with its version", row)
    ids = {x["SPDXID"] for x in bill["packages"] + bill["files"]} | {"SPDXRef-DOCUMENT"}
    loose = [r for r in bill["relationships"] if {r["spdxElementId"], r["relatedSpdxElement"]} - ids]
    expect(len(ids) == len(names) + 1 and not loose, "no name twice, none unknown", str(loose))
