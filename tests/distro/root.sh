#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# root.sh SUITE DIR [PACKAGE...]: makes DIR a clean Debian of SUITE with Slurm and munge, as a site has it before
# Ringmaster, and with these packages. The installation is kept in the cache, by its list of packages. Needs root.
set -euo pipefail
suite=$1 dir=$2
shift 2
packages=$(printf ',%s' slurmd slurmctld slurm-client slurm-wlm-basic-plugins munge iproute2 procps python3 libjansson4 libyaml-0-2 "$@")
packages=${packages#,}
cache=${RM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringmaster}/roots
tar=$cache/$suite-$(sha256sum <<<"$packages" | cut -c1-12).tar
mkdir -p "$cache"
exec 9>"$cache/$suite.lock"
flock 9
if [ ! -s "$tar" ]; then
    echo "ringmaster: installing a clean Debian ($suite) with Slurm (once; a minute or two)" >&2
    # a mirror may be older than its expiry date
    mmdebstrap --quiet --mode=root --variant=minbase --aptopt='APT::Install-Recommends "false"' \
        --aptopt='Acquire::Check-Valid-Until "false"' --include="$packages" "$suite" "$tar.new.tar" >&2
    mv "$tar.new.tar" "$tar"
fi
rm -rf "$dir"
mkdir -p "$dir"
tar -C "$dir" -xf "$tar"
: >>"$dir/etc/hosts" # tests/slurm mounts a file over it
