#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the checks: a small clean tree passes each of them, and each offence, put into it alone, is found by its
# check. TAP.
# shellcheck disable=SC2001,SC2016,SC2015
set -uo pipefail
LINT=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
export LINT_ROOT=$tree BUILD=build
unset V
n=0 failed=0

ok() { n=$((n + 1)); echo "ok $n - $1"; }
not_ok() { n=$((n + 1)); failed=$((failed + 1)); echo "not ok $n - $1"; sed 's/^/#   /' <<<"$2"; }

put() { # FILE, content on stdin
    mkdir -p "$tree/$(dirname "$1")"
    cat >"$tree/$1"
    git -C "$tree" add -- "$1"
}
compile() { # FILE.c
    mkdir -p "$tree/build/plain/$(dirname "$1")"
    (cd "$tree" && gcc -std=gnu11 -O1 -D_GNU_SOURCE -I. -c -o "build/plain/${1%.c}.o" "$1")
}
clean() { # a tree without an offence
    rm -rf "${tree:?}"/* "$tree/.git"
    git -C "$tree" init -q
    cp "$LINT/../../.clang-format" "$LINT/../../.clang-tidy" "$LINT/../../.ruff.toml" "$tree/" 2>/dev/null
    local head='/* SPDX-License-Identifier: Apache-2.0 */'
    printf '%s\n' "$head" 'int base_one(void);' | put runtime/base/err.h
    printf '%s\n' "$head" '#include "runtime/base/err.h"' '' 'int base_one(void) { return 1; }' | sed 's/ { return 1; }/\n{\n    return 1;\n}/' | put runtime/base/err.c
    printf '%s\n' "$head" 'int core_two(int x);' | put runtime/core/two.h
    printf '%s\n' "$head" '#include "runtime/core/two.h"' '' '#include "runtime/base/err.h"' '' 'int core_two(int x)' '{' '    return x + base_one();' '}' | put runtime/core/two.c
    printf '%s\n' '#!/usr/bin/env bash' '# SPDX-License-Identifier: Apache-2.0' 'set -euo pipefail' 'echo "hello"' | put tests/x.sh
    printf '%s\n' '# SPDX-License-Identifier: Apache-2.0' '"""A module."""' | put tests/x.py
    printf '%s\n' '# Title' '' 'See [the script](tests/x.sh).' | put README.md
    printf '%s\n' '# exceptions' | put tests/lint/allow
    compile runtime/base/err.c
    compile runtime/core/two.c
    mkdir -p "$tree/build/plain/lib"
    printf 'int hvd_x(void){return 1;}' | gcc -shared -fPIC -x c -o "$tree/build/plain/lib/libhvd.so" -
    mkdir -p "$tree/build/lint/runtime/core"
    : >"$tree/build/lint/runtime/core/two.tidy"
}
expect() { # CHECK NAME WORD: the check fails and its findings have the word
    local out rc
    out=$("$LINT/$1.sh" 2>&1)
    rc=$?
    if [ $rc -eq 77 ]; then n=$((n + 1)); echo "ok $n - $1: $2 # SKIP ${out##*$'\n'}"; return; fi
    if [ $rc -eq 1 ] && grep -qF -- "$3" <<<"$out"; then ok "$1: $2"; else not_ok "$1: $2 (exit $rc, expected 1 and \"$3\")" "$out"; fi
}

clean
for c in layers pure sizes symbols format tidied cppcheck shell python docs words names prose; do
    out=$("$LINT/$c.sh" 2>&1)
    case $? in
        0) ok "$c: a clean tree passes" ;;
        77) n=$((n + 1)); echo "ok $n - $c: a clean tree passes # SKIP ${out##*$'\n'}" ;;
        *) not_ok "$c: a clean tree passes" "$out" ;;
    esac
done

head='/* SPDX-License-Identifier: Apache-2.0 */'
printf '%s\n' "$head" '#include "runtime/core/two.h"' | put runtime/base/up.c
expect layers 'base includes core' 'runtime/base/up.c:2'
clean
printf '%s\n' "$head" '#include <curl/curl.h>' | put runtime/core/net.h
expect layers 'third-party header in a header' '<curl/curl.h> in a header'
clean
for i in 1 2 3; do printf '%s\n' "$head" '#include <yaml.h>' | put "operator/y$i.c"; done
expect layers 'third-party header in three files' '<yaml.h> appears in 3'
clean
printf '%s\n' "$head" '#include <time.h>' '#include "runtime/core/two.h"' 'int core_two(int x) { return x + (int)time(0); }' | put runtime/core/two.c
compile runtime/core/two.c
expect pure 'core reads the clock' 'needs time'
clean
printf '%s\n' "$head" '#include <stdlib.h>' 'int f(void);' 'int f(void) { return getenv("X") != 0; }' | put runtime/contract/token.c
cp "$tree/runtime/contract/token.c" "$tree/runtime/contract/other.c"
git -C "$tree" add -A
compile runtime/contract/token.c
compile runtime/contract/other.c
expect pure 'contract reads the environment, token.c may' 'runtime/contract/other.c: needs getenv'
clean
{ echo "$head"; for i in $(seq 600); do echo "/* $i */"; done; } | put runtime/core/long.c
expect sizes 'file of 601 lines' 'long.c: 601 lines'
clean
{ printf '%s\n' "$head" 'int f(int x)' '{'; for i in $(seq 80); do echo "    x += $i;"; done; printf '%s\n' '    return x;' '}'; } | put runtime/core/fn.c
expect sizes 'function of 84 lines' 'runtime/core/fn.c: f:'
clean
{ printf '%s\n' "$head" 'int f(int x)' '{'; for i in $(seq 20); do echo "    if (x == $i) return $i;"; done; printf '%s\n' '    return x;' '}'; } | put runtime/core/cc.c
expect sizes 'function of complexity 21' 'complexity 21'
clean
echo 'lines runtime/core/two.c # was long once' | put tests/lint/allow
expect sizes 'exception that is not needed' 'not needed any more'
clean
echo 'lines runtime/core/two.c' | put tests/lint/allow
expect sizes 'exception without a reason' 'has no reason'
clean
printf 'int hvd_x(void){return 1;} int leaked(void){return 2;}' | gcc -shared -fPIC -x c -o "$tree/build/plain/lib/libhvd.so" -
expect symbols 'a symbol leaks' 'exports leaked'
clean
printf 'int absent(void); int hvd_cuda_device_ops(void){return absent();}' \
    | gcc -shared -fPIC -x c -o "$tree/build/plain/lib/libhvd_cuda.so" -
expect symbols 'a function is missing' 'libhvd_cuda.so: absent is undefined'
clean
mkdir -p "$tree/build/portable/lib"
printf '#include <pthread.h>\nint hvd_x(void){return pthread_create(0,0,0,0);}' | gcc -shared -fPIC -x c -o "$tree/build/portable/lib/libhvd.so" -
expect symbols 'a portable object needs a new glibc' 'at most GLIBC_2.17: pthread_create'
clean
mkdir -p "$tree/build/stage/bin"
printf 'int main(void){return 0;}' | gcc -x c -o "$tree/build/stage/bin/hvd-agent" -
expect symbols 'the agent is not static' 'hvd-agent: is not static'
clean
mkdir -p "$tree/build/plain/bin"
printf 'int main(void){return 0;}' | gcc -no-pie -Wl,-z,lazy -x c -o "$tree/build/plain/bin/hvd-operator" -
expect symbols 'the operator is not hardened' 'hvd-operator: is not position-independent'
clean
mkdir -p "$tree/build/stage/lib"
printf 'int hvd_x(void){return 0;}' | gcc -shared -fPIC -Wl,-z,execstack -x c -o "$tree/build/stage/lib/libhvd.so" -
expect symbols 'an executable stack' 'libhvd.so: its stack is executable'
clean
printf '%s\n' "$head" 'int  f( int x );' | put runtime/core/two.h
expect format 'layout' 'runtime/core/two.h: clang-format'
clean
printf '%s\n' 'int f(int x);' | put runtime/core/two.h
expect format 'no licence line' 'two.h: no SPDX line'
clean
echo 'runtime/core/two.c:3:1: error: something [bugprone-x]' >"$tree/build/lint/runtime/core/two.tidy"
expect tidied 'finding of clang-tidy' 'bugprone-x'
clean
printf '%s\n' "$head" 'int f(void);' 'int f(void)' '{' '    int a[2] = {0, 0};' '    return a[2];' '}' | put runtime/core/oob.c
expect cppcheck 'array index out of bounds' 'runtime/core/oob.c:6'
clean
printf '%s\n' '#!/bin/sh' '# SPDX-License-Identifier: Apache-2.0' 'rm -rf $1' | put tests/tool
expect shell 'unquoted variable in a script without suffix' 'tests/tool:3'
clean
printf '%s\n' '# SPDX-License-Identifier: Apache-2.0' 'import os' | put tests/x.py
expect python 'unused import' 'F401'
clean
printf '%s\n' '# SPDX-License-Identifier: Apache-2.0' 'x = {  }' | put tests/x.py
expect python 'layout of Python' 'tests/x.py:2'
clean
printf '%s\n' '.TH X 8' '.SH NAME' 'x \- y' '.nosuchmacro' | put spank_plugin/x.8
expect docs 'broken man page' 'x.8'
clean
printf '%s\n' '# Title' 'This is te''h end.' | put README.md
expect docs 'spelling' 'README.md:2'
clean
printf '%s\n' '# Title' '[gone](no/such/file.md)' | put README.md
expect docs 'dead link' 'link to no/such/file.md'
clean
printf '%s\n' '# A title: `x` & y' '' '[here](#a-title-x--y), [there](#a-title)' | put README.md
expect docs 'link to a heading that is not there' 'link to #a-title: there is no'
tables() { # the operator's tables, and code with the same names; the offence overwrites it
    clean
    printf '%s\n' "$head" 'const char *f(void) { return "TokenLost"; }' | put operator/core/hvd_status.c
    printf '%s\n' "$head" 'const char *g(void) { return "hvd_operator_jobs"; }' | put operator/core/metrics.c
    printf '%s\n' '<!-- reasons: -->' '| `TokenLost` | x |' '<!-- end of reasons -->' | put operator/reference/horovodjob.md
    printf '%s\n' '<!-- metrics: -->' '| `hvd_operator_jobs` | x |' '<!-- end of metrics -->' | put operator/reference/monitoring.md
}
tables
out=$("$LINT/docs.sh" 2>&1) && ok 'docs: tables that have what the code has are fine' || not_ok 'docs: tables that have what the code has are fine' "$out"
printf '%s\n' "$head" 'const char *f(int x) { return x ? "TokenLost" : "NodeLost"; }' | put operator/core/hvd_status.c
expect docs 'reason that the table lacks' 'reasons: NodeLost is in the code'
tables
printf '%s\n' "$head" 'const char *f(void) { return ""; }' | put operator/core/hvd_status.c
expect docs 'reason that is gone' 'reasons: TokenLost is in the table'
tables
printf '%s\n' "$head" 'const char *g(void) { return "hvd_operator_jobs_total"; }' | put operator/core/metrics.c
expect docs 'metric under another name' 'metrics: hvd_operator_jobs is in the table'
clean
printf '%s\n' '#!/usr/bin/env bash' '# SPDX-License-Identifier: Apache-2.0' 'echo two' | put manifests/examples/make-horovodjob.sh
chmod +x "$tree/manifests/examples/make-horovodjob.sh"
echo one | put manifests/examples/horovodjob.yaml
expect docs 'example that is not what its script writes' 'horovodjob.yaml: is not what'
clean
printf '%s\n' "$head" '/* TODO tidy up */' | put runtime/core/two.h
expect words 'note without an issue number' 'runtime/core/two.h:2: todo-without-issue'
clean
printf '%s\n' 'cd /work/''here' | put tests/y.sh
expect words 'path of a machine' 'tests/y.sh:1: machine-path'
clean
printf '%s\n' 'curl https://pypi''.org/simple' | put tests/y.sh
expect words 'registry host' 'tests/y.sh:1: registry-host'
clean
printf '%s\n' "$head" '/* TODO(12): later */' | put runtime/core/two.h
out=$("$LINT/words.sh" 2>&1) && ok 'words: a note with an issue number is fine' || not_ok 'words: a note with an issue number is fine' "$out"

clean
printf '%s\n' "$head" 'static int f''ind(int x)' '{' '    return x;' '}' | put runtime/core/three.c
expect names 'function of one word' 'three.c:2: one-word: f''ind()'
echo 'one-word 1' | put tests/lint/ratchet
out=$("$LINT/names.sh" 2>&1) && ok 'names: what the ratchet allows is fine' || not_ok 'names: what the ratchet allows is fine' "$out"
clean
printf '%s\n' "$head" 'struct ticket {' '    int n;' '};' | tee >(put runtime/core/a.h) | put runtime/base/b.h
wait
expect names 'struct tag of two structs' 'equal-tag: struct ticket is also in'
clean
printf '%s\n' "$head" 'int core_is_absent(const char *p)' '{' '    return p == NU''LL;' '}' | put runtime/core/three.c
expect names 'comparison with NULL' 'three.c:4: null: write !p'
clean
printf '%s\n' "$head" 'unsigned long core_size(int x)' '{' '    return sizeof'' x;' '}' | put runtime/core/three.c
expect names 'sizeof without brackets' 'three.c:4: sizeof: write sizeof(x)'
clean
printf '%s\n' "$head" '/* A rank is'' told the result. */' | put runtime/core/two.h
expect prose 'word of the private dialect' 'two.h:2: dialect: is told'
clean
printf '%s\n' '# Title' '' "$(printf 'word %.0s' {1..30})" '' '| a | '"$(printf 'cell %.0s' {1..30})"'|' | sed 's/ $//' | put README.md
expect prose 'long line of prose' 'README.md:3: wide: 149 columns, at most 100'
clean
printf '%s\n' '# Title' '' '```' "$(printf 'word %.0s' {1..30})x" '```' '| '"$(printf 'cell %.0s' {1..30})"'|' | put README.md
out=$("$LINT/prose.sh" 2>&1) && ok 'prose: tables and code may be wide' || not_ok 'prose: tables and code may be wide' "$out"
echo '# why' >"$tree/tests/lint/ratchet"
echo 'wide 7' >>"$tree/tests/lint/ratchet"
printf '%s\n' '# Title' '' "$(printf 'word %.0s' {1..30})x" | put README.md
"$LINT/counts.py" --lower
lowered=$(cat "$tree/tests/lint/ratchet")
[ "$lowered" = '# why'$'\n''wide 1' ] && ok 'counts: --lower only lowers' || not_ok 'counts: --lower only lowers' "$lowered"

# clang-tidy itself, through tidy.sh
clean
printf '%s\n' "$head" '#include <stdlib.h>' 'int f(void);' 'int f(void)' '{' '    int *p = malloc(4);' '    free(p);' '    return *p;' '}' | put runtime/core/uaf.c
if command -v clang-tidy >/dev/null; then
    (cd "$tree" && "$LINT/tidy.sh" runtime/core/uaf.c build/lint/runtime/core/uaf.tidy -std=gnu11)
    expect tidied 'use after free' 'uaf.c:8'
fi
echo "1..$n"
[ "$failed" -eq 0 ]
