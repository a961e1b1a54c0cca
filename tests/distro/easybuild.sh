#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# easybuild.sh: EasyBuild installs the recipe from the archive of "make rpm", as a user without rights, with Debian's
# compiler and Lmod, and the module is used in a new shell. TAP. Needs root (make test-easybuild). The folder RM_RUN is
# removed before and, unless KEEP=1, afterwards.
# shellcheck disable=SC2016,SC2001 # quotes as meant, sed for lines
set -uo pipefail
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
BUILD=$(cd "$ROOT" && realpath -m "${BUILD:-build}")
W=${RM_RUN:-/tmp/ringmaster-easybuild}
# shellcheck source=tests/distro/tap.sh
. "$ROOT/tests/distro/tap.sh"
# SHELL-COMMAND: by a user without rights, in a new environment with Lmod
user() {
    (cd "$W" && env -i HOME="$W" TMPDIR="$W/tmp" PATH="$eb/bin:/usr/bin:/bin" \
        setpriv --reuid=nobody --regid=nogroup --clear-groups bash -c '. /usr/share/lmod/lmod/init/bash; '"$1" 2>&1)
}
"$ROOT/tests/setup/deb.sh" build slurm easybuild || { echo "Bail out! no Lmod"; exit 1; }
rm -rf "$W"
mkdir -p "$W/tmp"
[ "${KEEP:-0}" = 1 ] || trap 'rm -rf "$W"' EXIT
eb=$(RM_CACHE=$W/cache "$ROOT/tests/setup/venv.sh" easybuild) || { echo "Bail out! no EasyBuild"; exit 1; }
cp "$BUILD"/rpm/SOURCES/ringmaster-*.tar.gz "$ROOT"/packaging/easybuild/*.eb "$ROOT/tests/distro/step.py" "$W"
chown -R nobody "$W"

log=$(user 'eb --prefix=$HOME/sw --sourcepath=$HOME --buildpath=$HOME/tmp/build Ringmaster-0.1.0.eb')
is 'eb builds, installs and checks it' 'COMPLETED: Installation ended successfully' \
    "$(grep -o 'COMPLETED: Installation ended successfully' <<<"$log" || tail -40 <<<"$log")"
at=$W/sw/software/Ringmaster/0.1.0
load='module use $HOME/sw/modules/all; module load Ringmaster; '
is 'the module has the program in PATH' "$at/bin/horovodrun" "$(user "$load command -v horovodrun")"
is 'and starts ranks' '2 done 3.0' \
    "$(user "$load horovodrun -np 2 python3 step.py" | grep -o 'done . 3.0' | sed 's/ . / /' | uniq -c | sed 's/^ *//')"
is 'import horovod finds that of the module' "$at/lib/ringmaster/python/horovod/__init__.py" \
    "$(user "$load python3 -c 'import horovod; print(horovod.__file__)'")"
is 'the manual is that of the module' "$at/share/man/man1/horovodrun.1" "$(user "$load man -w horovodrun")"
line=$(grep ^optional "$at/share/doc/ringmaster/plugstack.conf.example")
is 'the line for plugstack.conf has paths of this installation' \
    "optional $at/lib/slurm/spank_hvd.so dir=$at/lib/ringmaster" "$line"
is 'srun with that line knows --hvd' 1 "$(echo "$line" >"$W/plugstack.conf"
    printf '%s\n' ClusterName=none SlurmctldHost=none "PlugStackConfig=$W/plugstack.conf" >"$W/slurm.conf"
    user "SLURM_CONF=$W/slurm.conf srun --help" | grep -c '^ *--hvd')"
echo "1..$n"
[ "$failed" -eq 0 ]
