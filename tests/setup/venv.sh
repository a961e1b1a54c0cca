#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# venv.sh NAME: prints the path of a virtual environment with the packages of tests/setup/venv/NAME.txt. It is
# created in the cache when it does not exist; its name contains a hash of that file. Comments in the file:
#   # python: /usr/bin/python3   the interpreter
#   # system-site-packages       Debian's packages are visible
#   # no-deps                    installs without dependencies
#   # no-build-isolation         builds with the packages of the environment
#   # then: x.py                 runs tests/setup/x.py with the new environment's Python (part of the hash)
#   # time: 2 minutes            for the message that is printed meanwhile
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
name=$1
req=$here/venv/$name.txt
cache=${RM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringmaster}/venv
then=$(sed -n "s/^# then: //p" "$req" | head -1)
key=$(cat "$req" ${then:+"$here/$then"} | sha256sum | cut -c1-12)
dir=$cache/$name-$key
mkdir -p "$cache"
exec 9>"$cache/$name.lock"
flock 9
if [ ! -e "$dir/.done" ]; then
    py=$(sed -n 's/^# python: //p' "$req" | head -1); py=${py:-/usr/bin/python3}
    opts=(); grep -q '^# system-site-packages' "$req" && opts+=(--system-site-packages)
    pip=(); grep -q '^# no-deps' "$req" && pip+=(--no-deps)
    grep -q '^# no-build-isolation' "$req" && pip+=(--no-build-isolation)
    echo "ringmaster: creating the Python environment '$name' (once; $(sed -n 's/^# time: //p' "$req" | head -1))" >&2
    rm -rf "$dir"
    "$py" -m venv "${opts[@]}" "$dir" >&2
    "$dir/bin/python" -m pip install -q --disable-pip-version-check "${pip[@]}" -r "$req" >&2
    [ -z "$then" ] || "$dir/bin/python" "$here/$then" >&2
    touch "$dir/.done"
fi
ln -sfn "$name-$key" "$cache/$name"
echo "$dir"
