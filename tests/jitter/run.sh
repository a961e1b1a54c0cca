#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh LIBRARY PROGRAM...: unit programs, then the Python suite's programs of ranks, each under random pauses
# (jitter.c), with streams of the fake GPU that pause too. What stands in `excluded` is left out.
#
#   JITTER_SEED=n     repeats a run's pauses; default: chosen, and printed
#   JITTER_ODDS, JITTER_MAX_US   as in jitter.c
#   JITTER_ONLY=regex only the programs whose path or name matches; JITTER_ONLY=unit or python: one half
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
lib=$(realpath "$1")
shift
export JITTER_SEED=${JITTER_SEED:-$((RANDOM * 32768 + RANDOM + 1))}
export HVD_FAKE_JITTER_US=${HVD_FAKE_JITTER_US:-$((500 + JITTER_SEED % 1000))}
only=${JITTER_ONLY:-.}
case $only in unit | python) only="(^|/)$only/" ;; esac
chosen() { # stdin: names; those that are wanted and not excluded
    grep -E -- "$only" | grep -vxF -f <(sed -nE 's/^([^# ]+) +#.*/\1/p' tests/jitter/excluded)
}
echo "# JITTER_SEED=$JITTER_SEED"
rc=0
mapfile -t programs < <(printf '%s\n' "$@" | sed 's,.*/unit/,unit/,' | chosen)
if [ ${#programs[@]} -gt 0 ]; then
    folder=$(dirname "$1")
    CMOCKA_MESSAGE_OUTPUT=TAP prove -j2 --timer --directives --failures --comments -e "env LD_PRELOAD=$lib" \
        "${programs[@]/#unit/$folder}" || rc=1
fi
mapfile -t names < <(find tests/python -name 'test_*.py' ! -name 'test_full*' | sed 's,.*/test_\(.*\)\.py,python/\1,' | sort | chosen)
if [ ${#names[@]} -gt 0 ]; then
    make --no-print-directory stage wheel fakes >&2 || exit # not under pauses
    LD_PRELOAD=$lib tests/python/run.sh "${names[@]#python/}" || rc=1
fi
echo "# JITTER_SEED=$JITTER_SEED"
exit $rc
