#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sbom.py IMAGE.tar VERSION OUT.spdx.json [FOLDER/=PACKAGE@VERSION]: writes the bill of materials
(SPDX 2.3) of an image that oci.py wrote.

It lists every file of the image with its digests and its package. Files in FOLDER belong to PACKAGE of
PyPI. Files that dpkg of this machine has at the same path with the same content belong to that Debian
package. All other files belong to Ringmaster VERSION. Libraries that are linked into programs are not
listed separately (musl, in hvd-agent). The same image gives the same bytes.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import time
import urllib.parse

EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "1"))
OURS = "ringmaster"
MADE_HERE = {"etc/ssl/certs/ca-certificates.crt": "ca-certificates"}  # by a package's script, so in no list


def spdx_id(kind, *words):
    return "SPDXRef-" + "-".join([kind, *(re.sub(r"[^A-Za-z0-9.]+", "-", w) for w in words)])


def owners(paths):
    """Returns {path: (package, version)} for those of the paths that belong to a package of dpkg."""
    real = {os.path.realpath("/" + p): p for p in paths}
    # /lib is a link to /usr/lib since Debian 12's file lists were made
    asked = {alias: p for path, p in real.items() for alias in (path, path.removeprefix("/usr"))}
    told = subprocess.run(
        ["dpkg", "-S", *sorted(asked)], capture_output=True, text=True, check=False
    ).stdout
    found = {}
    for line in told.splitlines():
        names, _, path = line.partition(": ")
        if path in asked:
            found[asked[path]] = names.split(",")[0].strip()
    found |= {path: name for path, name in MADE_HERE.items() if path in paths}
    if not found:
        return {}
    packages = sorted(set(found.values()))
    shown = subprocess.run(
        ["dpkg-query", "-W", "-f", "${binary:Package}\t${Version}\t${Architecture}\n", *packages],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    rows = [line.split("\t") for line in shown.splitlines()]
    facts = {name: (name.partition(":")[0], version, arch) for name, version, arch in rows}
    facts |= {name.partition(":")[0]: fact for name, fact in facts.items()}
    return {path: facts[package] for path, package in found.items()}


def is_this_machine_s(path, data):
    try:
        with open("/" + path, "rb") as here:
            return here.read() == data
    except OSError:
        return False


def read_image(archive):
    """Returns the image's name, the digest of its manifest, and the files of its layer."""
    with tarfile.open(archive) as image:

        def blob(descriptor):
            return image.extractfile("blobs/" + descriptor["digest"].replace(":", "/"))

        top = json.load(image.extractfile("index.json"))["manifests"][0]
        files = {}
        for layer in json.load(blob(top))["layers"]:
            with tarfile.open(fileobj=blob(layer)) as tar:
                files |= {i.name: tar.extractfile(i).read() for i in tar if i.isreg()}
    return top["annotations"]["io.containerd.image.name"], top["digest"], files


def package(name, version, license_, **more):
    return {
        "SPDXID": spdx_id("Package", name),
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": license_,
        "copyrightText": "NOASSERTION",
    } | more


def file_entry(path, data):
    digests = {"SHA1": hashlib.sha1(data), "SHA256": hashlib.sha256(data)}
    return {
        "SPDXID": spdx_id("File", hashlib.sha256(path.encode()).hexdigest()[:16]),
        "fileName": "./" + path,
        "checksums": [{"algorithm": k, "checksumValue": v.hexdigest()} for k, v in digests.items()],
        "licenseConcluded": "NOASSERTION",
        "copyrightText": "NOASSERTION",
    }


def purl(kind, name, version, more=""):
    locator = f"pkg:{kind}/{name}@{urllib.parse.quote(version, safe='')}{more}"
    return [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator}]


def bill(archive, version, bundled):
    name, digest, files = read_image(archive)
    owned = owners([p for p, data in sorted(files.items()) if is_this_machine_s(p, data)])
    image = package(name, version, "NOASSERTION", primaryPackagePurpose="CONTAINER")
    packages = {OURS: package(OURS, version, "Apache-2.0")}
    links = [("SPDXRef-DOCUMENT", "DESCRIBES", image["SPDXID"])]
    for debian, debian_version, arch in sorted(set(owned.values())):
        refs = purl("deb/debian", debian, debian_version, f"?arch={arch}")
        packages[debian] = package(debian, debian_version, "NOASSERTION", externalRefs=refs)
    for folder, _, pypi in (b.partition("=") for b in bundled):
        pypi, _, pypi_version = pypi.partition("@")
        refs = purl("pypi", pypi, pypi_version)
        packages[pypi] = package(pypi, pypi_version, "NOASSERTION", externalRefs=refs)
        owned |= {path: (pypi,) for path in files if path.startswith(folder)}
    links += [(image["SPDXID"], "CONTAINS", p["SPDXID"]) for p in packages.values()]
    entries = []
    for path, data in sorted(files.items()):
        entries.append(file_entry(path, data))
        owner = packages[owned.get(path, (OURS,))[0]]
        links.append((owner["SPDXID"], "CONTAINS", entries[-1]["SPDXID"]))
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": "urn:" + digest,
        "creationInfo": {
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH)),
            "creators": ["Tool: sbom.py"],
        },
        "packages": [image, *packages.values()],
        "files": entries,
        "relationships": [
            {"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b} for a, kind, b in links
        ],
    }


def main():
    if len(sys.argv) < 4:
        sys.exit("usage: sbom.py IMAGE.tar VERSION OUT.spdx.json")
    text = json.dumps(bill(sys.argv[1], sys.argv[2], sys.argv[4:]), indent=1, sort_keys=True)
    with open(sys.argv[3], "w") as out:
        out.write(text + "\n")


main()
