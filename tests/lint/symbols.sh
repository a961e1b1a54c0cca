#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Symbols and headers of the shipped objects: libhvd.so exports only hvd_* and needs only libc; portable builds need
# no newer glibc than 2.17; the agent and launchers are static; the plugin exports only what Slurm looks up; the
# operator is hardened; no object has an executable stack or a library path of the build machine. Checks the
# objects that are built.
. "$(dirname "$0")/lib.sh"
need objdump
seen=0
built() { # PATH: it exists, and is counted
    [ -f "$1" ] || return 1
    seen=$((seen + 1))
}
exports() { nm -D --defined-only "$1" | awk '{print $NF}' | sed 's/@.*//'; }
needed() { objdump -p "$1" | awk '$1 == "NEEDED" {print $2}'; }

check_exports() { # FILE REGEX
    local sym
    for sym in $(exports "$1" | grep -vxE "$2" || true); do finding "$1: exports $sym; only $2 may be"; done
}
check_glibc() { # FILE: versions above 2.17
    local v
    for v in $(objdump -T "$1" | grep -oE 'GLIBC_[0-9.]+' | sort -uV); do
        if [ "$(printf '%s\n2.17\n' "${v#GLIBC_}" | sort -V | tail -1)" != 2.17 ]; then
            finding "$1: needs $v, portable objects at most GLIBC_2.17: $(objdump -T "$1" | awk -v v="$v" 'index($0, v) {print $NF}' | tr '\n' ' ')"
        fi
    done
}
check_old_glibc() { # FILE: a symbol that glibc 2.17 lacks has no version
    local sym
    for sym in $(nm -D -u "$1" | awk '$1 == "U" && $2 !~ /@/ {print $2}'); do
        finding "$1: needs $sym, which glibc 2.17 does not have"
    done
}
check_needed() { # FILE REGEX
    local lib
    for lib in $(needed "$1" | grep -vxE "$2" || true); do finding "$1: needs $lib; only $2 may be"; done
}
check_static() { # FILE
    if grep -q 'NEEDED' <<<"$(objdump -p "$1")"; then finding "$1: is not static: needs $(needed "$1" | tr '\n' ' ')"; fi
}
check_bounds() { # FILE: what no object may have
    if grep -qE 'GNU_STACK.* RWE' <<<"$(readelf -lW "$1")"; then finding "$1: its stack is executable"; fi
    if readelf -dW "$1" | grep -E 'RPATH|RUNPATH' | grep -qv '\[.ORIGIN'; then finding "$1: looks for libraries elsewhere than beside itself"; fi
}
check_hardened() { # FILE: a position-independent program, read-only after relocation, with checked stack and libc calls
    grep -q 'Type:.*DYN' <<<"$(readelf -hW "$1")" || finding "$1: is not position-independent"
    grep -q GNU_RELRO <<<"$(readelf -lW "$1")" || finding "$1: has no RELRO"
    grep -q 'BIND_NOW' <<<"$(readelf -dW "$1")" || finding "$1: binds lazily, so RELRO is partial"
    grep -q __stack_chk_fail <<<"$(objdump -T "$1")" || finding "$1: has no stack protector"
    grep -qE '__[a-z]+_chk$' <<<"$(objdump -T "$1")" || finding "$1: has no _FORTIFY_SOURCE"
}

if built "$BUILD/plain/bin/hvd-operator"; then check_hardened "$BUILD/plain/bin/hvd-operator"; fi
for f in "$BUILD"/plain/bin/hvd-operator "$BUILD"/stage/bin/hvd-agent "$BUILD"/{plain,portable}/lib/*.so "$BUILD"/stage/lib/*.so; do
    if [ -f "$f" ]; then check_bounds "$f"; fi
done
for so in "$BUILD"/{plain,portable}/lib/libhvd.so "$BUILD/stage/lib/libhvd.so"; do
    built "$so" || continue
    check_exports "$so" 'hvd_[a-z0-9_]+'
    check_needed "$so" '(libc|libm|libpthread|libdl|librt|ld-linux[-a-z0-9_]*)\.so\.[0-9]+'
    case "$so" in */plain/*) ;; *) check_glibc "$so"; check_old_glibc "$so" ;; esac
done
# The library between libhvd.so and CUDA: one exported symbol, and no undefined one, which only a call would find.
for f in "$BUILD"/{plain,portable}/{lib/libhvd_cuda.so,bin/hvd-gpu} "$BUILD"/stage/{lib/libhvd_cuda.so,bin/hvd-gpu}; do
    built "$f" || continue
    case "$f" in *.so) check_exports "$f" 'hvd_cuda_device_ops' ;; esac
    check_needed "$f" '(libc|libm|libpthread|libdl|librt|ld-linux[-a-z0-9_]*)\.so\.[0-9]+'
    case "$f" in */plain/*) ;; *) check_glibc "$f" ;; esac
    for sym in $(nm -D -u "$f" | awk '$1 == "U" && $2 !~ /@/ {print $2}'); do finding "$f: $sym is undefined"; done
done
while IFS= read -r -d '' f; do
    case "$f" in *.so) built "$f" && check_glibc "$f" ;; esac
done < <(find "$BUILD/stage" -type f -name '*.so' -print0 2>/dev/null)
for prog in hvd-agent horovodrun perseusrun; do
    f=$BUILD/stage/bin/$prog
    if built "$f" && [ "$(head -c4 "$f" | tail -c3)" = ELF ]; then check_static "$f"; fi
done
if built "$BUILD/plain/lib/spank_hvd.so"; then
    check_exports "$BUILD/plain/lib/spank_hvd.so" 'slurm_spank_[a-z_]+|plugin_(name|type|version)|spank_plugin_version'
    # each function of ours that it calls must be inside, otherwise Slurm fails when it loads the plugin
    for sym in $(nm -D -u "$BUILD/plain/lib/spank_hvd.so" | awk '{print $NF}' | sed 's/@.*//' \
        | grep -E '^(contract|layout|token|rdv|auth|hostlist|places|strbuf|mem|err|fd|tcp|parse|sha256|hex|srun|node|task|seal|ticket)_' || true); do
        finding "$BUILD/plain/lib/spank_hvd.so: $sym is undefined"
    done
fi
[ "$seen" -gt 0 ] || skip "nothing is built: make all, make stage"
finish
