#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# inside.sh DEBS NEXT: the packages of folder DEBS on a clean Debian with Slurm: installed, used, replaced by those of
# NEXT while a step runs, removed, purged. Runs in inroot; TAP.
# shellcheck disable=SC2016,SC2001,SC2046 # quotes as meant, sed for lines, names of packages are words
set -uo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
DEBS=$1 NEXT=$2
export RM_SLURM_RUN=/run/distro PLUGSTACK=/etc/slurm/plugstack.conf DEBIAN_FRONTEND=noninteractive
# shellcheck source=tests/slurm/lib.sh
. "$HERE/../slurm/lib.sh"
# shellcheck source=tests/distro/tap.sh
. "$HERE/tap.sh"
srun() { timeout 180 "$HERE/../slurm/on" ctl srun -Q "$@"; }
files() { # what is installed: not dpkg's own records, nor caches
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path "$(realpath "$HERE/../..")" \
        -o -path /var/lib/dpkg -o -path /var/cache -o -path /var/log -o -path /debs \) -prune -o -print | sort
}
step=/usr/local/step.py
cp "$HERE/step.py" $step

files >/tmp/before
log=$(dpkg -i "$DEBS"/*.deb 2>&1)
is 'the packages install on a clean Debian with Slurm' 0 "$?$(grep -i error <<<"$log")"
is 'nothing is half installed' '' "$(dpkg --audit)"
is 'no file differs from its package' '' "$(dpkg --verify ringmaster-runtime ringmaster-tools 2>&1)"
is 'horovodrun is in PATH and starts ranks' '2 done 3.0' \
    "$(horovodrun -np 2 python3 $step 2>&1 | grep -o 'done . 3.0' | sed 's/ . / /' | uniq -c | sed 's/^ *//')"
for p in horovodrun hvd-agent kubectl-hvd; do
    is "$p has a manual page and completion" 1 \
        "$([ -s /usr/share/man/man1/$p.1.gz ] && [ -s /usr/share/bash-completion/completions/$p ] && echo 1)"
done
is 'each program in PATH has a manual page' '' "$(for p in $(dpkg -L ringmaster-tools | grep ^/usr/bin/); do
    [ -e "/usr/share/man/man1/${p##*/}.1.gz" ] || echo "$p"; done)"

"$HERE/../slurm/up" 2 >&2 || { echo "Bail out! Slurm did not start"; exit 1; }
old=$(dpkg-query -W -f '${Version}' ringmaster-runtime)
is 'srun --hvd runs a step, with nothing configured' "done 0 3.0 $old
done 1 3.0 $old" "$(srun --hvd -N2 -n2 python3 $step 2>&1 | grep -v ready | sort)"

idle_nodes() { [ "$("$HERE/../slurm/on" ctl sinfo -h -t idle -o %D)" = 2 ]; }
within 120 idle_nodes
is 'hvd-slurm-check: plugin, programs and Python package are of one version on both nodes' "node1 $old $old $old
node2 $old $old $old" "$(timeout 300 "$HERE/../slurm/on" ctl hvd-slurm-check | awk '/^node/ && NF > 5 {print $1, $2, $3, $4}')"

# --- upgrade while a step runs ----------------------------------------------------------------------
for r in 0 1; do mkfifo "$RUN/go.$r"; done
srun --hvd -N2 -n2 python3 $step "$RUN" >"$RUN/out" 2>&1 &
running=$!
ranks_wait() { [ "$(grep -c ready "$RUN/out")" = 2 ]; }
within 120 ranks_wait
is 'a step runs before the upgrade' 2 "$(grep -c ready "$RUN/out")"
log=$(dpkg -i "$NEXT"/*.deb 2>&1)
is 'the packages are upgraded meanwhile' 0 "$?$(grep -i error <<<"$log")"
new=$(dpkg-query -W -f '${Version}' ringmaster-runtime)
is 'the step still has the library that it started with' 1 \
    "$(grep -lE 'libhvd\.so(\.dpkg-[a-z]*)? \(deleted\)' /proc/[0-9]*/maps 2>/dev/null | head -1 | wc -l)"
is 'a step that starts after the upgrade uses the new runtime' "done 0 3.0 $new
done 1 3.0 $new" "$(srun --hvd --overlap -N2 -n2 python3 $step 2>&1 | grep -v ready | sort)"
# a rank that is not there does not open its end
for r in 0 1; do timeout 60 bash -c 'echo go >"$1"' go "$RUN/go.$r"; done
wait $running
is 'the old step ends without error' 0 $?
is 'its ranks reduced before and after' "done 0 3.0 $old
done 1 3.0 $old" "$(grep -v ready "$RUN/out" | sort)"

# --- removal ------------------------------------------------------------------------------------------
echo "# mine" >>/etc/ringmaster/plugstack.conf
log=$(dpkg -r $(dpkg-query -W -f '${Package} ' 'ringmaster-*') 2>&1)
is 'the packages are removed' 0 "$?$(grep -i error <<<"$log")"
is 'an ordinary step runs, and says nothing of us' 'hello' "$(srun -n1 echo hello 2>&1)"
is 'removal keeps the edited configuration' '# mine' "$(tail -1 /etc/ringmaster/plugstack.conf)"
log=$(dpkg -P $(dpkg-query -W -f '${Package} ' 'ringmaster-*') 2>&1)
is 'the packages are purged' 0 "$?$(grep -i error <<<"$log")"
"$HERE/../slurm/down" >&2
files >/tmp/after
is 'nothing is left' '' "$(diff /tmp/before /tmp/after)"
echo "1..$n"
[ "$failed" -eq 0 ]
