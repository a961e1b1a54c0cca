#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs libFuzzer programs one after the other and prints TAP.
#   run.sh FOLDER SECONDS NAME...   FOLDER holds the programs; what they find goes to FOLDER/found
set -euo pipefail
folder=$1 seconds=$2
shift 2
here=$(dirname "$0")
n=0 failed=0
echo "1..$#"
for name in "$@"; do
    n=$((n + 1))
    found=$folder/found/$name
    mkdir -p "$found"
    log=$folder/$name.log
    if timeout $((seconds + 60)) "$folder/$name" -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=1024 -max_len=2048 -artifact_prefix="$found/" -print_final_stats=1 \
        "$found" "$here/corpus/$name" >"$log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        echo "ok $n - fuzz $name: $runs inputs in $seconds s"
    else
        failed=1
        echo "not ok $n - fuzz $name"
        tail -40 "$log" | sed 's/^/# /'
    fi
done
exit $failed
