#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# deb.sh GROUP...: installs the missing Debian packages of the groups in `packages`. Idempotent. Without a missing
# package it prints nothing, takes no time and does not need root.
set -euo pipefail
cd "$(dirname "$0")"
missing=()
for group in "$@"; do
    line=$(grep "^$group:" packages) || { echo "deb.sh: no package group '$group' in tests/setup/packages" >&2; exit 2; }
    for p in ${line#*:}; do
        dpkg-query -W -f '${db:Status-Status}\n' "$p" 2>/dev/null | grep -qx installed || missing+=("$p")
    done
done
[ ${#missing[@]} -eq 0 ] && exit 0
if ! command -v apt-get >/dev/null; then
    echo "ringmaster: this set-up needs Debian 12 (apt-get not found); missing: ${missing[*]}" >&2; exit 1
fi
if [ "$(id -u)" != 0 ]; then
    echo "ringmaster: missing packages; run as root: apt-get install ${missing[*]}" >&2; exit 1
fi
echo "ringmaster: installing ${#missing[@]} Debian packages for $* (up to a minute or two): ${missing[*]}" >&2
lock=/var/lock/ringmaster-apt
exec 9>"$lock"; flock 9
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { apt-get update -qq && apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}"; } >"$log" 2>&1 9>&-; then
    tail -20 "$log" >&2
    echo "ringmaster: apt-get could not install: ${missing[*]}" >&2
    exit 1
fi
