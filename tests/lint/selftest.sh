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
c_file() { # FILE LINE...
    printf '%s\n' '/* SPDX-License-Identifier: Apache-2.0 */' "${@:2}" | put "$1"
}
compile() { # FILE.c
    mkdir -p "$tree/build/plain/$(dirname "$1")"
    (cd "$tree" && gcc -std=gnu11 -O1 -D_GNU_SOURCE -I. -c -o "build/plain/${1%.c}.o" "$1")
}
link_into() { # FILE FLAG...: below build, from C on stdin
    mkdir -p "$tree/build/$(dirname "$1")"
    gcc "${@:2}" -x c -o "$tree/build/$1" -
}
clean() { # a tree without an offence
    rm -rf "${tree:?}"/* "$tree/.git"
    git -C "$tree" init -q
    cp "$LINT/../../.clang-format" "$LINT/../../.clang-tidy" "$LINT/../../.ruff.toml" "$tree/" 2>/dev/null
    c_file runtime/base/err.h 'int base_one(void);'
    c_file runtime/base/err.c '#include "runtime/base/err.h"' '' 'int base_one(void)' '{' '    return 1;' '}'
    c_file runtime/core/two.h 'int core_two(int x);'
    c_file runtime/core/two.c '#include "runtime/core/two.h"' '' '#include "runtime/base/err.h"' '' 'int core_two(int x)' '{' '    return x + base_one();' '}'
    printf '%s\n' '#!/usr/bin/env bash' '# SPDX-License-Identifier: Apache-2.0' 'set -euo pipefail' 'echo "hello"' | put tests/x.sh
    printf '%s\n' '# SPDX-License-Identifier: Apache-2.0' '"""A module."""' | put tests/x.py
    printf '%s\n' '# Title' '' 'See [the script](tests/x.sh).' | put README.md
    printf '%s\n' '# exceptions' | put tests/lint/allow
    compile runtime/base/err.c
    compile runtime/core/two.c
    link_into plain/lib/libhvd.so -shared -fPIC <<<'int hvd_x(void){return 1;}'
    mkdir -p "$tree/build/lint/runtime/core"
    : >"$tree/build/lint/runtime/core/two.tidy"
}
expect_nothing() { # CHECK NAME: the check finds nothing
    local out
    out=$("$LINT/$1.sh" 2>&1)
    case $? in
        0) ok "$1: $2" ;;
        77) n=$((n + 1)); echo "ok $n - $1: $2 # SKIP ${out##*$'\n'}" ;;
        *) not_ok "$1: $2" "$out" ;;
    esac
}
expect() { # CHECK NAME WORD: the check fails and its findings have the word; then the tree is clean again
    local out rc
    out=$("$LINT/$1.sh" 2>&1)
    rc=$?
    if [ $rc -eq 77 ]; then n=$((n + 1)); echo "ok $n - $1: $2 # SKIP ${out##*$'\n'}"
    elif [ $rc -eq 1 ] && grep -qF -- "$3" <<<"$out"; then ok "$1: $2"
    else not_ok "$1: $2 (exit $rc, expected 1 and \"$3\")" "$out"; fi
    clean
}

clean
for c in layers circles pure sizes symbols format tidied cppcheck cleanup shell python docs words names prose; do
    expect_nothing $c 'a clean tree passes'
done

c_file runtime/base/up.c '#include "runtime/core/two.h"'
expect layers 'base includes core' 'runtime/base/up.c:2'
c_file runtime/core/net.h '#include <curl/curl.h>'
expect layers 'third-party header in a header' '<curl/curl.h> in a header'
for i in 1 2 3; do c_file "operator/y$i.c" '#include <yaml.h>'; done
expect layers 'third-party header in three files' '<yaml.h> appears in 3'

for i in 1 2 3 4 5 6; do # each calls the next one, the last one the first
    next=$((i % 6 + 1))
    c_file "runtime/core/ring$i.c" "int ring_$next(void);" "int ring_$i(void);" "int ring_$i(void) { return ring_$next(); }"
    compile "runtime/core/ring$i.c"
done
expect circles 'six files depend on each other' 'runtime/core/ring6.c -> runtime/core/ring1.c: ring_1'
for i in 1 2 3 4 5; do
    next=$((i % 5 + 1))
    c_file "runtime/core/ring$i.c" "int ring_$next(void);" "int ring_$i(void);" "int ring_$i(void) { return ring_$next(); }"
    compile "runtime/core/ring$i.c"
done
expect_nothing circles 'a circle of five files is fine'
clean

c_file runtime/core/two.c '#include <time.h>' '#include "runtime/core/two.h"' 'int core_two(int x) { return x + (int)time(0); }'
compile runtime/core/two.c
expect pure 'core reads the clock' 'needs time'
c_file runtime/contract/token.c '#include <stdlib.h>' 'int f(void);' 'int f(void) { return getenv("X") != 0; }'
cp "$tree/runtime/contract/token.c" "$tree/runtime/contract/other.c"
git -C "$tree" add -A
compile runtime/contract/token.c
compile runtime/contract/other.c
expect pure 'contract reads the environment, token.c may' 'runtime/contract/other.c: needs getenv'

mapfile -t lines < <(seq -f '/* %g */' 600)
c_file runtime/core/long.c "${lines[@]}"
expect sizes 'file of 601 lines' 'long.c: 601 lines'
mapfile -t lines < <(seq -f '    x += %g;' 80)
c_file runtime/core/fn.c 'int f(int x)' '{' "${lines[@]}" '    return x;' '}'
expect sizes 'function of 84 lines' 'runtime/core/fn.c: f:'
mapfile -t lines < <(seq -f '    if (x == %g) return 1;' 20)
c_file runtime/core/cc.c 'int f(int x)' '{' "${lines[@]}" '    return x;' '}'
expect sizes 'function of complexity 21' 'complexity 21'
echo 'lines runtime/core/two.c # was long once' | put tests/lint/allow
expect sizes 'exception that is not needed' 'not needed any more'
echo 'lines runtime/core/two.c' | put tests/lint/allow
expect sizes 'exception without a reason' 'has no reason'

link_into plain/lib/libhvd.so -shared -fPIC <<<'int hvd_x(void){return 1;} int leaked(void){return 2;}'
expect symbols 'a symbol leaks' 'exports leaked'
link_into plain/lib/libhvd_cuda.so -shared -fPIC <<<'int absent(void); int hvd_cuda_device_ops(void){return absent();}'
expect symbols 'a function is missing' 'libhvd_cuda.so: absent is undefined'
printf '#include <pthread.h>\nint hvd_x(void){return pthread_create(0,0,0,0);}' | link_into portable/lib/libhvd.so -shared -fPIC
expect symbols 'a portable object needs a new glibc' 'at most GLIBC_2.17: pthread_create'
link_into stage/bin/hvd-agent <<<'int main(void){return 0;}'
expect symbols 'the agent is not static' 'hvd-agent: is not static'
link_into plain/bin/hvd-operator -no-pie -Wl,-z,lazy <<<'int main(void){return 0;}'
expect symbols 'the operator is not hardened' 'hvd-operator: is not position-independent'
link_into stage/lib/libhvd.so -shared -fPIC -Wl,-z,execstack <<<'int hvd_x(void){return 0;}'
expect symbols 'an executable stack' 'libhvd.so: its stack is executable'

c_file runtime/core/two.h 'int  f( int x );'
expect format 'layout' 'runtime/core/two.h: clang-format'
printf '%s\n' 'int f(int x);' | put runtime/core/two.h
expect format 'no licence line' 'two.h: no SPDX line'

echo 'runtime/core/two.c:3:1: error: something [bugprone-x]' >"$tree/build/lint/runtime/core/two.tidy"
expect tidied 'finding of clang-tidy' 'bugprone-x'

c_file runtime/core/oob.c 'int f(void);' 'int f(void)' '{' '    int a[2] = {0, 0};' '    return a[2];' '}'
expect cppcheck 'array index out of bounds' 'runtime/core/oob.c:6'

held() { # STATEMENT...: a function with these
    c_file runtime/core/held.c 'int core_held(int x)' '{' "${@/#/    }" '    return x;' '}'
}
early='if (x) return x;'
held 'CLEANUP(buf_release) struct buf b = {0}, c = {.max = 1};' 'AUTOFREE char *p = NULL, *q = core_p(x, 1);' "$early" \
    'CLEANUP(buf_release) struct buf d, e;' 'CLEANUP(fd_close)' 'int fd;' 'int n = 1; /* no branch */' \
    'buf_init(&d, 9);' 'buf_init_secret(&e, 9);' 'fd = -1;' "$early"
expect_nothing cleanup 'variables with a value before the first branch are fine'
held 'CLEANUP(buf_release) struct buf b;' "$early" 'buf_init(&b, 9);'
expect cleanup 'a return before the variable has a value' 'held.c:4: b is released'
held 'AUTOFREE char *p = NULL, *q;' "$early" 'q = core_p(x);'
expect cleanup 'the second of two' 'held.c:4: q is released'
held 'CLEANUP(fd_close)' 'int fds[2];' 'if (fd_open(&fds)) return x;'
expect cleanup 'a call that may fail' 'held.c:4: fds is released'
held '__attribute__((cleanup(buf_release))) struct buf b;' 'core_read(&b);'
expect cleanup 'a call that may not write' 'held.c:4: b is released'

printf '%s\n' '#!/bin/sh' '# SPDX-License-Identifier: Apache-2.0' 'rm -rf $1' | put tests/tool
expect shell 'unquoted variable in a script without suffix' 'tests/tool:3'

printf '%s\n' '# SPDX-License-Identifier: Apache-2.0' 'import os' | put tests/x.py
expect python 'unused import' 'F401'
printf '%s\n' '# SPDX-License-Identifier: Apache-2.0' 'x = {  }' | put tests/x.py
expect python 'layout of Python' 'tests/x.py:2'

printf '%s\n' '.TH X 8' '.SH NAME' 'x \- y' '.nosuchmacro' | put spank_plugin/x.8
expect docs 'broken man page' 'x.8'
printf '%s\n' '# Title' 'This is te''h end.' | put README.md
expect docs 'spelling' 'README.md:2'
printf '%s\n' '# Title' '[gone](no/such/file.md)' | put README.md
expect docs 'dead link' 'link to no/such/file.md'
printf '%s\n' '# A title: `x` & y' '' '[here](#a-title-x--y), [there](#a-title)' | put README.md
expect docs 'link to a heading that is not there' 'link to #a-title: there is no'
tables() { # the operator's tables, and code with the same names; the offence overwrites it
    c_file operator/core/hvd/hvd_status.c 'const char *f(void) { return "TokenLost"; }'
    c_file operator/core/metrics.c 'const char *g(void) { return "hvd_operator_jobs"; }'
    printf '%s\n' '<!-- reasons: -->' '| `TokenLost` | x |' '<!-- end of reasons -->' | put operator/reference/horovodjob.md
    printf '%s\n' '<!-- metrics: -->' '| `hvd_operator_jobs` | x |' '<!-- end of metrics -->' | put operator/reference/monitoring.md
}
tables
expect_nothing docs 'tables that have what the code has are fine'
c_file operator/core/hvd/hvd_status.c 'const char *f(int x) { return x ? "TokenLost" : "NodeLost"; }'
expect docs 'reason that the table lacks' 'reasons: NodeLost is in the code'
tables
c_file operator/core/hvd/hvd_status.c 'const char *f(void) { return ""; }'
expect docs 'reason that is gone' 'reasons: TokenLost is in the table'
tables
c_file operator/core/metrics.c 'const char *g(void) { return "hvd_operator_jobs_total"; }'
expect docs 'metric under another name' 'metrics: hvd_operator_jobs is in the table'
printf '%s\n' '#!/usr/bin/env bash' '# SPDX-License-Identifier: Apache-2.0' 'echo two' | put manifests/examples/make-horovodjob.sh
chmod +x "$tree/manifests/examples/make-horovodjob.sh"
echo one | put manifests/examples/horovodjob.yaml
expect docs 'example that is not what its script writes' 'horovodjob.yaml: is not what'

c_file runtime/core/two.h '/* TODO(12): later */'
expect_nothing words 'a note with an issue number is fine'
c_file runtime/core/two.h '/* TODO tidy up */'
expect words 'note without an issue number' 'runtime/core/two.h:2: todo-without-issue'
printf '%s\n' 'cd /work/''here' | put tests/y.sh
expect words 'path of a machine' 'tests/y.sh:1: machine-path'
printf '%s\n' 'curl https://pypi''.org/simple' | put tests/y.sh
expect words 'registry host' 'tests/y.sh:1: registry-host'

c_file runtime/core/three.c 'static int f''ind(int x)' '{' '    return x;' '}'
echo 'one-word 1' | put tests/lint/ratchet
expect_nothing names 'what the ratchet allows is fine'
echo '# nothing' | put tests/lint/ratchet
expect names 'function of one word' 'three.c:2: one-word: f''ind()'
for f in core/a base/b; do c_file "runtime/$f.h" 'struct ticket {' '    int n;' '};'; done
expect names 'struct tag of two structs' 'equal-tag: struct ticket is also in'
c_file runtime/core/three.c 'int core_is_absent(const char *p)' '{' '    return p == NU''LL;' '}'
expect names 'comparison with NULL' 'three.c:4: null: write !p'
c_file runtime/core/three.c 'unsigned long core_size(int x)' '{' '    return sizeof'' x;' '}'
expect names 'sizeof without brackets' 'three.c:4: sizeof: write sizeof(x)'

c_file runtime/core/two.h '/* A rank is'' told the result. */'
expect prose 'word of the private dialect' 'two.h:2: dialect: is told'
printf '%s\n' '# Title' '' "$(printf 'word %.0s' {1..30})" '' '| a | '"$(printf 'cell %.0s' {1..30})"'|' | sed 's/ $//' | put README.md
expect prose 'long line of prose' 'README.md:3: wide: 149 columns, at most 100'
printf '%s\n' '# Title' '' '```' "$(printf 'word %.0s' {1..30})x" '```' '| '"$(printf 'cell %.0s' {1..30})"'|' | put README.md
expect_nothing prose 'tables and code may be wide'
echo '# why' >"$tree/tests/lint/ratchet"
echo 'wide 7' >>"$tree/tests/lint/ratchet"
printf '%s\n' '# Title' '' "$(printf 'word %.0s' {1..30})x" | put README.md
"$LINT/counts.py" --lower
lowered=$(cat "$tree/tests/lint/ratchet")
[ "$lowered" = '# why'$'\n''wide 1' ] && ok 'counts: --lower only lowers' || not_ok 'counts: --lower only lowers' "$lowered"

# clang-tidy itself, through tidy.sh
clean
c_file runtime/core/uaf.c '#include <stdlib.h>' 'int f(void);' 'int f(void)' '{' '    int *p = malloc(4);' '    free(p);' '    return *p;' '}'
if command -v clang-tidy >/dev/null; then
    (cd "$tree" && "$LINT/tidy.sh" runtime/core/uaf.c build/lint/runtime/core/uaf.tidy -std=gnu11)
    expect tidied 'use after free' 'uaf.c:8'
fi
echo "1..$n"
[ "$failed" -eq 0 ]
