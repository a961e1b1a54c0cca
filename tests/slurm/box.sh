# shellcheck shell=bash disable=SC2154,SC2016 # run.sh sources this: its functions and variables; tasks expand
# SPDX-License-Identifier: Apache-2.0
# Containers of pyxis: what a --hvd step needs is in them, because of enroot's hook. After found.sh, within run.sh.
# Debian has neither program: tests/fakes/spank_box.c and tests/fakes/box play them. With PYXIS=spank_pyxis.so of this
# Slurm, and enroot in PATH with the hook installed (make install-spank), the same tests run with the real ones.
image=$RUN/image box=$RUN/box
install -d "$image/etc" "$image$RUN" "$box/hooks.d"
for dir in bin sbin lib lib64; do ln -sfn "usr/$dir" "$image/$dir"; done # of the host's /usr
printf '%s\n' PATH=/usr/bin:/bin PYTHONPATH=/image/python IMAGE=box >"$image/etc/environment"
cp -a /etc/alternatives "$image/etc/" # libraries are links to them
if [ -f "$train" ]; then cp "$train" "$image$RUN/train_digits.py"; fi
if [ -n "${PYXIS-}" ]; then
    cp "$PYXIS" "$RUN/plugin/spank_pyxis.so"
    install -d -m 711 "$box/pyxis"
    printf '%s\n' 'exec "$@"' >"$image/etc/rc"
    export ENROOT_LOGIN_SHELL=no # that of nobody ends at once
    mkdir -p "$image/usr" && mksquashfs "$image" "$box/image.sqsh" -quiet -no-progress >&2
    pyxis="required $RUN/plugin/spank_pyxis.so runtime_path=$box/pyxis"
    in_image=(--container-image="$box/image.sqsh" --container-mounts=/usr:/usr)
else
    cp "$HERE/../fakes/box" "$box/"
    cp "$ROOT/spank_plugin/enroot/50-ringmaster.sh" "$box/hooks.d/"
    cp "${PLUGIN%/*}/spank_box.so" "$RUN/plugin/spank_box.so"
    pyxis="required $RUN/plugin/spank_box.so $box/box"
    in_image=(--container-image="$image")
fi
boxes() { # ARGUMENT...: of spank_hvd.so, which comes after pyxis
    plugstack "$@"
    sed -i "1i $pyxis" "$RUN/etc/plugstack.conf"
}
in_box() { UID_GID=65534:65534 srun --hvd "${in_image[@]}" "$@" 2>&1; }

boxes "${conf[@]}"
# shellcheck disable=SC2016
is 'a container has the contract, its own environment, the runtime in front, token and hostfile' \
    "$(for r in 0 1 2 3; do echo "$r/4 node$((r / 2 + 1)) box $RUN/empty/bin:/usr/bin:/bin $RUN/empty/python:/image/python 65 node1 slots=2 node2 slots=2"; done)" \
    "$(in_box -N2 -n4 --ntasks-per-node=2 bash -c 'echo $HOROVOD_RANK/$HOROVOD_SIZE $HOROVOD_HOSTNAME $IMAGE $PATH $PYTHONPATH $(wc -c <"$HVD_TOKEN_FILE") $(cat "$HVD_HOSTFILE")' | sorted)"
is 'the container cannot change the runtime or the folder of the tokens' "$(printf '%s: Read-only file system\n' "$RUN/empty/x" "$RUNDIR/x")" \
    "$(in_box -n1 bash -c "touch $RUN/empty/x; touch $RUNDIR/x; true" | sed "s/.*touch '\(.*\)'/\1/")"
is 'a container of a step without --hvd shows neither' "$(printf '%s: No such file or directory\n' "$RUN/empty" "$RUNDIR")" \
    "$(UID_GID=65534:65534 srun "${in_image[@]}" -n1 bash -c "ls $RUN/empty; ls $RUNDIR; true" 2>&1 | sed "s/.*access '\(.*\)'/\1/")"
plugstack "${conf[@]}"
echo "$pyxis" >>"$RUN/etc/plugstack.conf"
has 'plugstack.conf has the other order: the error message says so' "$(in_box -n1 true)" \
    'hvd: plugstack.conf: the line of spank_pyxis.so must be before that of spank_hvd.so'
if [ -x "$found_rank" ]; then
    install -d "$found/python"
    cp -r "$RUN/empty/python/_hvd" "$found/python/"
    boxes "${conf[0]}" "dir=$found"
    is 'programs of the runtime are in PATH, and ranks in containers form a world' "$(found_places horovod)" \
        "$(found_ranks "$(in_box -N2 -n4 --ntasks-per-node=2 found-rank)")"
fi
boxes "${conf[0]}" "dir=$RUN/stage"
UID_GID=65534:65534 trains 'srun --hvd --container-image trains' --hvd "${in_image[@]}"
if [ -z "${PYXIS-}" ]; then
    boxes "${conf[0]}" "dir=$RUN/empty"
    rm "$box/hooks.d/50-ringmaster.sh"
    has 'enroot has no hook of ours: srun says what the container lacks' "$(in_box -n1 true)" "hvd: node1: cannot read $RUNDIR/" \
        '/token in the task; a container must show this folder (CONTAINERS in spank_hvd(8))'
fi
