#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The objects of core/ folders and of the contract are pure: each symbol that they take from outside is in
# pure.allow (libc functions without clock, files, environment, sockets, threads, randomness) or is defined
# by a pure module of ours. contract/token.c is the only file of the contract that reads files.
. "$(dirname "$0")/lib.sh"
need nm
O=$BUILD/${V:-plain}
mapfile -t core < <(files 'runtime/core/*.c' 'runtime/launch/core/*.c' 'operator/core/*.c' 'operator/cli/core/*.c' 'operator/page/core/*.c' 'spank_plugin/submit/core/*.c' 'runtime/contract/*.c' \
    'runtime/backend/nccl/card.c' 'runtime/backend/nccl/comm_state.c' 'runtime/backend/nccl/fuse.c' 'runtime/backend/nccl/exchange.c' \
    'runtime/backend/nccl/dtype.c' 'runtime/wire/bytes.c' 'runtime/wire/auth_wire.c' \
    'runtime/control/address.c' 'runtime/world/description.c')
mapfile -t base < <(files runtime/base/{err,mem,arena,strbuf,parse,sha256,spelling,utf8}.c \
    runtime/live/live_{fields,progress,report,worker}.c operator/doc/{node,base64,json,prune,object,jsontext,yaml,yaml_write}.c)
[ ${#core[@]} -gt 0 ] || skip "no core folder yet"
objects() { local f; for f in "$@"; do printf '%s\n' "$O/${f%.c}.o"; done; }
mapfile -t all_o < <(objects "${core[@]}" "${base[@]}")
for o in "${all_o[@]}"; do [ -f "$o" ] || skip "$o is not built (make lint builds it)"; done

known=$(mktemp)
trap 'rm -f "$known"' EXIT
# what pure modules define, except their functions that are not pure
nm -A --defined-only "${all_o[@]}" | awk '{print $NF}' | grep -vxE 'random_bytes|mem_fail_(after|fired)|token_.*' >"$known"
grep -vE '^(#|$)' "$LINT/pure.allow" >>"$known"
declare -A is_known=()
while read -r sym; do is_known[$sym]=y; done <"$known"
for f in "${core[@]}"; do
    [ "$f" = runtime/contract/token.c ] && continue
    while read -r sym; do
        [ -z "${is_known[$sym]:-}" ] || continue
        allowed symbol "$f:$sym" && continue
        finding "$f: needs $sym: core folders and the contract have no clock, files, environment, sockets, threads, randomness"
    done < <(nm -u "$O/${f%.c}.o" | awk '{print $NF}')
done
finish
