#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""oci.py OUT.tar NAME:TAG [option ...]: writes an OCI image archive with one layer.

Needs nothing but Python: no daemon, no registry, no root. The same content gives the same
bytes: owners, times and order are fixed. `ctr images import`, `podman load` and
`docker load` take the archive.

  --file SRC=DEST      a file (mode kept, symbolic links followed)
  --tree DIR=DEST      a folder with all that is in it (symbolic links kept)
  --link TARGET=DEST   a symbolic link
  --dir DEST[:MODE]    an empty folder, mode in octal
  --tar FILE           a root file system's tar archive, for the whole layer; owners are kept,
                       /dev, package caches and paths that match --exclude GLOB are left out
  --user UID[:GID]     --entrypoint ARG (repeat)    --env NAME=VALUE (repeat)
  --label NAME=VALUE (repeat)
"""

import argparse
import fnmatch
import hashlib
import io
import json
import os
import sys
import tarfile
import tempfile

EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "1"))
DROPPED = ("dev/", "proc/", "sys/", "var/cache/apt/", "var/lib/apt/lists/", "var/log/")
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def without_dot(path):
    return path[2:] if path.startswith("./") else path.lstrip("/")


class Layer:
    """A tar file under construction, with parent folders created as needed."""

    def __init__(self, out):
        # closed by make_layer
        self.tar = tarfile.TarFile(fileobj=out, mode="w", format=tarfile.PAX_FORMAT)
        self.seen = set()

    def add(self, path, kind, mode, data=None, size=0, link=""):
        path = path.strip("/")
        if path in self.seen:
            return
        parent = os.path.dirname(path)
        if parent:
            self.add(parent, tarfile.DIRTYPE, 0o755)
        self.seen.add(path)
        info = tarfile.TarInfo(path)
        info.type, info.mode, info.mtime = kind, mode, EPOCH
        info.size, info.linkname = size, link
        self.tar.addfile(info, data)

    def add_file(self, src, dest):
        status = os.stat(src)
        with open(src, "rb") as data:
            self.add(dest, tarfile.REGTYPE, status.st_mode & 0o755, data, status.st_size)

    def add_tree(self, root, dest):
        self.add(dest, tarfile.DIRTYPE, 0o755)
        for folder, names, files in os.walk(root):
            names.sort()
            for name in sorted(names + files):
                src = os.path.join(folder, name)
                to = os.path.join(dest, os.path.relpath(src, root))
                if os.path.islink(src):
                    self.add(to, tarfile.SYMTYPE, 0o777, link=os.readlink(src))
                elif os.path.isdir(src):
                    self.add(to, tarfile.DIRTYPE, 0o755)
                else:
                    self.add_file(src, to)

    def add_tar(self, path, excluded):
        with tarfile.open(path) as source:
            for info in source:
                name = without_dot(info.name)
                if (
                    name in ("", ".")
                    or name.startswith(DROPPED)
                    or info.isdev()
                    or any(fnmatch.fnmatchcase(name, glob) for glob in excluded)
                ):
                    continue
                info.name = name
                if info.islnk():
                    info.linkname = without_dot(info.linkname)
                info.mtime = EPOCH
                info.uname = info.gname = ""
                self.tar.addfile(info, source.extractfile(info) if info.isreg() else None)


def pair(text):
    left, found, right = text.partition("=")
    if not found or not left or not right:
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form A=B")
    return left, right


def arguments():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("out")
    parser.add_argument("name")
    for option in ("file", "tree", "link", "label"):
        parser.add_argument("--" + option, type=pair, action="append", default=[])
    for option in ("entrypoint", "env", "dir", "exclude"):
        parser.add_argument("--" + option, action="append", default=[])
    parser.add_argument("--tar")
    parser.add_argument("--user", default="")
    return parser.parse_args()


def make_layer(args, out):
    layer = Layer(out)
    if args.tar:
        layer.add_tar(args.tar, args.exclude)
    for item in args.dir:
        path, _, mode = item.partition(":")
        layer.add(path, tarfile.DIRTYPE, int(mode or "755", 8))
    for src, dest in args.tree:
        layer.add_tree(src, dest)
    for src, dest in args.file:
        layer.add_file(src, dest)
    for target, dest in args.link:
        layer.add(dest, tarfile.SYMTYPE, 0o777, link=target)
    layer.tar.close()


def digest_of(stream):
    digest = hashlib.sha256()
    stream.seek(0)
    for block in iter(lambda: stream.read(1 << 20), b""):
        digest.update(block)
    return digest.hexdigest()


def main():
    args = arguments()
    if ":" not in args.name.rsplit("/", 1)[-1]:
        sys.exit(f"oci.py: the image name '{args.name}' has no tag")
    folder = os.path.dirname(os.path.abspath(args.out))
    with tempfile.TemporaryFile(dir=folder) as layer:
        make_layer(args, layer)
        layer_size, layer_digest = layer.tell(), digest_of(layer)
        config = {"Env": [PATH] + args.env}
        if args.user:
            config["User"] = args.user
        if args.entrypoint:
            config["Entrypoint"] = args.entrypoint
        if args.label:
            config["Labels"] = dict(args.label)
        config_blob = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": config,
                "rootfs": {"type": "layers", "diff_ids": ["sha256:" + layer_digest]},
            },
            sort_keys=True,
        ).encode()

        def descriptor(kind, digest, size, **more):
            return dict(
                mediaType="application/vnd.oci.image." + kind, digest="sha256:" + digest, size=size, **more
            )

        config_digest = hashlib.sha256(config_blob).hexdigest()
        manifest_blob = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": descriptor("config.v1+json", config_digest, len(config_blob)),
                "layers": [descriptor("layer.v1.tar", layer_digest, layer_size)],
            },
            sort_keys=True,
        ).encode()
        manifest_digest = hashlib.sha256(manifest_blob).hexdigest()
        index_blob = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.index.v1+json",
                "manifests": [
                    descriptor(
                        "manifest.v1+json",
                        manifest_digest,
                        len(manifest_blob),
                        platform={"architecture": "amd64", "os": "linux"},
                        annotations={
                            "io.containerd.image.name": args.name,
                            "org.opencontainers.image.ref.name": args.name.rsplit(":", 1)[1],
                        },
                    )
                ],
            },
            sort_keys=True,
        ).encode()

        with tarfile.open(args.out + ".new", "w") as out:

            def blob(name, data, size):
                info = tarfile.TarInfo(name)
                info.size, info.mode, info.mtime = size, 0o644, EPOCH
                out.addfile(info, data)

            layout = b'{"imageLayoutVersion": "1.0.0"}'
            blob("oci-layout", io.BytesIO(layout), len(layout))
            blob("index.json", io.BytesIO(index_blob), len(index_blob))
            for digest, data in ((manifest_digest, manifest_blob), (config_digest, config_blob)):
                blob("blobs/sha256/" + digest, io.BytesIO(data), len(data))
            layer.seek(0)
            blob("blobs/sha256/" + layer_digest, layer, layer_size)
    os.rename(args.out + ".new", args.out)


main()
