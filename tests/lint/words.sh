#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Words that must not be in the tree: hosts of package mirrors, paths of one machine, TODO notes without an issue
# number, conflict markers.
. "$(dirname "$0")/lib.sh"
mapfile -t all < <(files '*' | grep -vE '^(tests/lint/(words|selftest)\.sh|LICENSE)$')
[ ${#all[@]} -gt 0 ] || skip "no files"
ban() { # WHAT REGEX
    local hit file rest
    while IFS= read -r hit; do
        file=${hit%%:*}
        rest=${hit#*:}
        allowed word "$file:$1" || finding "$file:${rest%%:*}: $1: $(cut -c1-120 <<<"${rest#*:}")"
    done < <(printf '%s\0' "${all[@]}" | xargs -0 grep -InE "$2" /dev/null || true)
}
ban machine-path '(^|[^A-Za-z0-9_.$}/-])/(work|root|home/[a-z]+|tmp/rm)(/|[^A-Za-z0-9_.-]|$)'
ban registry-host '(deb\.debian\.org|pypi\.org|files\.pythonhosted\.org|proxy\.golang\.org|sum\.golang\.org|registry\.k8s\.io|docker\.io|gcr\.io|quay\.io|ghcr\.io)'
ban todo-without-issue '\b(TODO|FIXME|XXX|HACK)\b([^(]|\([^0-9)]*\)|$)'
ban conflict-marker '^(<<<<<<<|>>>>>>>)( |$)'
finish
