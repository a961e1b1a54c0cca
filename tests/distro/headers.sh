#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# headers.sh: compiles what includes Slurm's headers against those of each release that Debian has. They are downloaded
# from the machine's mirror with an apt configuration of our own: the machine's is not changed. TAP.
# shellcheck disable=SC2016,SC2001 # quotes as meant, sed for lines, names of packages are words
set -uo pipefail
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
cache=${RM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringmaster}/slurm-headers
# suite and release; 20.11 is older than what is supported, and compiles
suites=(bullseye:20.11 bookworm:22.05 trixie:24.11 sid:26.05)

get() { # SUITE DIR
    local apt=$2.apt opts
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$2.new"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $1 main" >"$apt/sources.list"
    opts=(-o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$apt/lists"
        -o Dir::Cache="$apt/cache" -o Dir::State::status=/dev/null -o Acquire::Languages=none
        -o Acquire::Check-Valid-Until=false -o APT::Sandbox::User=root)
    apt-get -qq "${opts[@]}" update && (cd "$apt" && apt-get -qq "${opts[@]}" download libslurm-dev) \
        && dpkg-deb -x "$apt"/libslurm-dev_*.deb "$2.new" && mv "$2.new" "$2"
    local rc=$?
    rm -rf "$apt" "$2.new"
    return $rc
}

mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep '/debian/\?$' | head -1)
mkdir -p "$cache"
echo "1..${#suites[@]}"
n=0 failed=0
for s in "${suites[@]}"; do
    n=$((n + 1)) suite=${s%:*} dir=$cache/$suite out=
    [ -d "$dir" ] || get "$suite" "$dir" >&2 || out="no libslurm-dev of $suite"
    include=$dir/usr/include
    number=$(sed -n 's/^#define SLURM_VERSION_NUMBER 0x\([0-9a-f]*\)$/\1/p' "$include"/slurm/slurm{_version,}.h 2>/dev/null)
    have=$(printf '%d.%02d' "0x0${number:0:2}" "0x0${number:2:2}")
    for f in plugin slurm_io; do
        [ -z "$out" ] || break
        out=$(cd "$ROOT" && gcc -fsyntax-only -std=gnu11 -Wall -Wextra -Werror -D_GNU_SOURCE -I. -Iruntime/include -DHVD_VERSION_STRING="\"0\"" -DRUNTIME_DIR="\"/opt\"" \
            -isystem "$include" "spank_plugin/$f.c" 2>&1)
    done
    [ -n "$out" ] || [ "$suite" = sid ] || [ "$have" = "${s#*:}" ] || out="$suite has $have"
    [ -z "$out" ] || failed=$((failed + 1))
    echo "$([ -z "$out" ] || echo 'not ')ok $n - Slurm $have of $suite"
    [ -z "$out" ] || sed 's/^/#   /' <<<"$out"
done
[ "$failed" -eq 0 ]
