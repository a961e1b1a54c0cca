#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which folder may include which. The table is the architecture: a folder may include its own headers and those
# of the folders in its row. A third-party header (not of libc or the kernel) is in no .h of ours and in at most
# two .c files.
. "$(dirname "$0")/lib.sh"

# folder            may include, besides its own
table='
runtime/base        -
runtime/contract    runtime/base
runtime/wire        runtime/base runtime/contract
runtime/live        runtime/base runtime/contract runtime/wire
runtime/rendezvous  runtime/base runtime/contract runtime/wire
runtime/bootstrap   runtime/base runtime/contract
runtime/core        runtime/base runtime/contract runtime/wire
runtime/backend     runtime/base runtime/core runtime/contract runtime/rendezvous runtime/wire
runtime/backend/nccl runtime/base runtime/core runtime/backend runtime/wire
runtime/control     runtime/base runtime/contract runtime/core runtime/rendezvous runtime/wire
runtime/observe     runtime/base runtime/contract runtime/core runtime/control runtime/backend/device.h runtime/engine/op.h runtime/world/settings.h hvd.h
runtime/engine      runtime/base runtime/contract runtime/core runtime/control runtime/backend runtime/observe runtime/world/settings.h runtime/world/sets.h hvd.h
runtime/world       runtime/base runtime/contract runtime/core runtime/control runtime/backend runtime/engine runtime/rendezvous runtime/wire runtime/bootstrap hvd.h
runtime/api         runtime/base runtime/contract runtime/core runtime/world runtime/engine runtime/bootstrap runtime/wire/bytes.h runtime/wire/member_message.h hvd.h
runtime/launch      runtime/base runtime/contract runtime/live runtime/rendezvous runtime/wire
runtime/python      runtime/core/digest.h hvd.h
runtime/tensorflow  hvd.h
operator/doc        runtime/base
operator/core       runtime/base runtime/contract runtime/live operator/doc operator/kube/path.h
operator/kube       runtime/base operator/doc
operator/cli/core   runtime/base operator/core operator/doc
operator/cli        runtime/base operator/cli/core operator/core operator/doc
operator/page/core  runtime/base runtime/live operator/core operator/cli/core operator/doc
operator/page       runtime/base runtime/contract runtime/live operator operator/core operator/cli/core operator/page/core operator/kube operator/doc
operator            runtime/base runtime/contract runtime/live runtime/rendezvous runtime/wire operator/core operator/kube operator/doc operator/page
spank_plugin        runtime/base runtime/contract runtime/core runtime/launch/core runtime/rendezvous runtime/wire
spank_plugin/submit/core runtime/base operator/core operator/doc
spank_plugin/submit runtime/base spank_plugin/submit/core operator/cli operator/core operator/doc
'
mapfile -t sources < <(files 'runtime/*.c' 'runtime/*.h' 'operator/*.c' 'operator/*.h' 'spank_plugin/*.c' 'spank_plugin/*.h')
[ ${#sources[@]} -gt 0 ] || skip "no C sources"

list=$(mktemp) std=$(mktemp)
trap 'rm -f "$list" "$std"' EXIT
# FILE LINE KIND HEADER
awk '/^[ \t]*#[ \t]*include[ \t]*["<]/ {
        split($0, p, /["<>]/)
        print FILENAME, FNR, (index($0, "<") ? "sys" : "own"), p[2]
     }' "${sources[@]}" >"$list"

declare -A rules=() # of folders
while read -r file line kind header; do
    [ "$kind" = own ] || continue
    in=${file%/*}
    [ -n "${rules[$in]+known}" ] || rules[$in]=$(awk -v f="$in/" \
        'NF && index(f, $1 "/") == 1 && length($1) > n {n = length($1); r = $0} END {print r}' <<<"$table")
    # shellcheck disable=SC2086 # a list of words
    set -- ${rules[$in]}
    ok=no
    for folder in "$@"; do
        if [ "$header" = "$folder" ] || [ "${header#"$folder"/}" != "$header" ]; then ok=yes; fi
    done
    # a header beside the file, without folder: generated tables and the like
    if [ "$ok" = no ] && [ -f "$in/$header" ]; then ok=yes; fi
    if [ "$ok" = no ] && ! allowed include "$file:$header"; then
        finding "$file:$line: includes \"$header\"; ${1:-this folder} may include only its own and: ${*:2}"
    fi
done <"$list"

if command -v dpkg >/dev/null && command -v gcc >/dev/null; then
    {
        dpkg -L libc6-dev linux-libc-dev | sed -nE 's,^/usr/include/(x86_64-linux-gnu/|aarch64-linux-gnu/)?(.*\.h)$,\2,p'
        find "$(gcc -print-file-name=include)" -name '*.h' -printf '%P\n'
    } | sort -u >"$std"
    while read -r file line kind header; do
        case "$file" in
            *.h) allowed include "$file:$header" || finding "$file:$line: third-party <$header> in a header of ours" ;;
            *.c) echo "$header $file" >>"$list.third" ;;
        esac
    done < <(awk 'FILENAME != ARGV[2] {std[$1]; next} $3 == "sys" && !($4 in std)' "$std" "$list")
    if [ -f "$list.third" ]; then
        while read -r header count; do
            [ "$count" -le 2 ] || allowed header "$header" \
                || finding "<$header> appears in $count .c files, at most two: $(awk -v h="$header" '$1 == h {print $2}' "$list.third" | sort -u | tr '\n' ' ')"
        done < <(sort -u "$list.third" | awk '{n[$1]++} END {for (h in n) print h, n[h]}')
        rm -f "$list.third"
    fi
fi
finish
