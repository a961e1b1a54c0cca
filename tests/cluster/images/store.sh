#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# store.sh ARCHIVE...: prints a containerd root folder in the cache that already holds these
# OCI archives unpacked; made when missing.
#
# Unpacking a training image of 1 GB takes longer than starting the whole cluster, and every
# node of every cluster needs it. So a node starts from hard links to this folder: layers and
# blobs are never written to, and the databases are copied (box-node.sh).
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../lib.sh
. "$here/../lib.sh"
need_root
key=$(for a in "$@"; do basename "$a"; done | sha256sum | cut -c1-12)
out=$RM_CACHE/images/store-$key
if [ ! -e "$out" ]; then
    exec 8>"$RM_CACHE/images/lock"
    flock -w 1800 8
fi
if [ ! -e "$out" ]; then
    say "unpacking $# image(s) for the nodes (once; 5 to 40 s)"
    work=$(mktemp -d "$RM_CACHE/images/work.XXXXXX")
    cat >"$work/config.toml" <<EOF
version = 2
root = "$work/root"
state = "$work/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "$work/sock"
EOF
    containerd -c "$work/config.toml" >"$work/log" 2>&1 8>&- 9>&- &
    pid=$!
    trap 'kill $pid 2>/dev/null || true; wait $pid || true; rm -rf "$work"' EXIT
    wait_for 30 "a containerd to unpack with" ctr -a "$work/sock" version
    for archive in "$@"; do
        with_progress "unpacking $(basename "$archive")" \
            ctr -a "$work/sock" -n k8s.io images import "$archive"
    done
    kill $pid
    wait $pid || true
    mv "$work/root" "$out"
fi
echo "$out"
