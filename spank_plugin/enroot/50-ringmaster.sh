#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Hook of enroot (/etc/enroot/hooks.d): a container of a --hvd step, which pyxis starts, shows the runtime and the
# folder with the tokens at the same path as the node. Runs as the user, who could mount both anyway.
set -euo pipefail

# pyxis replaces PATH and PYTHONPATH by the image's, so spank_hvd.so must come after it
if [ -n "${PYXIS_VERSION-}" ] && [ -z "${SLURM_HVD_MOUNTS-}" ] \
    && [[ ${HVD_TOKEN_FILE-} == */"${SLURM_JOB_ID-}.${SLURM_STEP_ID-}".*/token ]]; then
    echo "hvd: plugstack.conf: the line of spank_pyxis.so must be before that of spank_hvd.so" >&2
    exit 1
fi
[ -n "${SLURM_HVD_MOUNTS-}" ] || exit 0
IFS=: read -r dir run_dir <<<"$SLURM_HVD_MOUNTS"

mount_line() { # PATH OPTIONS; a blank is written as fstab(5) says
    if [ -d "$1" ]; then
        printf '%s %s none x-create=dir,bind,ro,nosuid,nodev,%s\n' "${1// /\\040}" "${1// /\\040}" "$2" >>"$ENROOT_MOUNTS"
    fi
}
mount_line "$dir" private
# whole, not the step's own folder: a container with a name outlives a step and is used by the next
mount_line "$run_dir" noexec,private
