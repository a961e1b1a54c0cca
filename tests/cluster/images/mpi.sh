#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mpi.sh: prints the paths of two OCI archives, made when missing, as MPIJobs' images are:
#
#   localhost/mpi-ssh:1    Debian 12 with Open MPI and MPICH, an sshd, and ssh told not to ask;
#                          also for the user mpiuser (1000), whose sshd listens on port 2222
#   localhost/mpi-bare:1   the same without sshd, ssh and any key
#
# Both have tests/launch/mpi_pi.c as mpi-pi-openmpi and mpi-pi-mpich, compiled here; nothing of
# Ringmaster is in them. The archives are in the cache, named by a hash of what makes them. What
# Debian's packages bring along and MPI never opens (perl, X11, XML, apt) is left out.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# What images for mpi-operator do to Debian's configuration (arguments: the root folder).
configure() {
    sed -i 's/^#\?StrictModes .*/StrictModes no/' "$1/etc/ssh/sshd_config"
    printf '%s\n' '    StrictHostKeyChecking no' '    UserKnownHostsFile /dev/null' '    LogLevel ERROR' \
        'Match localuser mpiuser' '    Port 2222' >>"$1/etc/ssh/ssh_config"
    chroot "$1" useradd -m -u 1000 -s /bin/bash mpiuser
    printf '%s\n' 'PidFile none' 'HostKey /home/mpiuser/.ssh/id_rsa' 'StrictModes no' 'UsePAM no' 'Port 2222' \
        >"$1/home/mpiuser/.sshd_config"
}
if [ "${1:-}" = --configure ]; then
    configure "$2"
    exit
fi

RM_CACHE=${RM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringmaster}
source=$here/../../launch/mpi_pi.c
lib=usr/lib/x86_64-linux-gnu
packages=openmpi-bin,mpich,openssh-server,openssh-client
without=("/usr/share/doc/*" "/usr/share/man/*" "/usr/share/locale/*" "/usr/share/info/*"
    "/usr/include/*" "/usr/lib/*.a")
pruned=("usr/bin/perl*" "usr/share/perl*" "$lib/perl*" "$lib/libperl*" "$lib/libicu*" "$lib/libxml2*"
    "$lib/hwloc/*" "$lib/libX*" "usr/share/X11/*" "usr/share/zoneinfo/*" "$lib/libapt*" "usr/lib/apt/*"
    "$lib/libmpichfort*" "$lib/liboshmem*" "var/cache/*" "var/lib/dpkg/*" "etc/ssh/moduli")
ssh=("usr/sbin/sshd" "usr/bin/ssh*" "usr/bin/scp" "usr/bin/sftp" "usr/bin/slogin" "usr/lib/openssh*"
    "etc/ssh*" "home/mpiuser/.sshd_config")
key=$({ printf '%s\n' "$packages" "${without[@]}" "${pruned[@]}" "${ssh[@]}"; cat "$0" "$source"; } | sha256sum | cut -c1-12)
out=("$RM_CACHE/images/mpi-ssh-$key.tar" "$RM_CACHE/images/mpi-bare-$key.tar")

if [ -e "${out[0]}" ] && [ -e "${out[1]}" ]; then
    printf '%s\n' "${out[@]}"
    exit 0
fi
# shellcheck source-path=SCRIPTDIR source=../lib.sh
. "$here/../lib.sh"
need_root
"$REPO/tests/setup/deb.sh" cluster mpi

mkdir -p "$RM_CACHE/images"
exec 8>"$RM_CACHE/images/lock"
flock -w 0 8 || { say "another process makes an image; waiting for it"; flock -w 3600 8; }
if [ ! -e "${out[0]}" ] || [ ! -e "${out[1]}" ]; then
    say "making the MPI images (once; 1 to 3 minutes, 70 MB of Debian packages)"
    work=$(mktemp -d "$RM_CACHE/images/work.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    options=()
    for pattern in "${without[@]}"; do options+=("--dpkgopt=path-exclude=$pattern"); done
    with_progress "MPI images: packages" mmdebstrap --variant=minbase "${options[@]}" \
        --aptopt='Apt::Install-Recommends "false"' --include="$packages" \
        --customize-hook="$here/mpi.sh --configure \"\$1\"" bookworm "$work/root.tar"
    programs=()
    for mpi in openmpi mpich; do
        mpicc.$mpi -O1 -D_GNU_SOURCE -o "$work/mpi-pi-$mpi" "$source"
        programs+=(--file "$work/mpi-pi-$mpi=/usr/bin/mpi-pi-$mpi")
    done
    say "MPI images: writing the archives"
    "$REPO/manifests/images/oci.py" "$work/ssh.tar" localhost/mpi-ssh:1 --dir /run/sshd \
        --tar "$work/root.tar" "${pruned[@]/#/--exclude=}" "${programs[@]}"
    "$REPO/manifests/images/oci.py" "$work/bare.tar" localhost/mpi-bare:1 \
        --tar "$work/root.tar" "${pruned[@]/#/--exclude=}" "${ssh[@]/#/--exclude=}" "${programs[@]}"
    mv "$work/ssh.tar" "${out[0]}"
    mv "$work/bare.tar" "${out[1]}"
fi
printf '%s\n' "${out[@]}"
