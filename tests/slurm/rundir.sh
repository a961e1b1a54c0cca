# shellcheck shell=bash disable=SC2154,SC2016 # run.sh sources this: its functions and variables; tasks expand
# SPDX-License-Identifier: Apache-2.0
# The directory of a step on a node is root's: its user reads the two files in it and changes nothing, so it is
# small, and its removal is short whatever the user does meanwhile.
user_srun() { UID_GID=65534:65534 srun --hvd "$@"; }
is_rundir_empty() { [ -z "$(ls -A "$RUNDIR" 2>/dev/null)" ]; }
nothing_left() { # NAME
    if within 60 is_rundir_empty; then ok "$1"; else not_ok "$1" "$(ls -lR "$RUNDIR")"; fi
}

cat >"$RUN/attack" <<'A'
#!/bin/bash
# prints what worked
d=$(dirname "$HVD_TOKEN_FILE")
try() { "$@" 2>/dev/null && echo "$*"; }
try touch "$d/file"
try mkdir "$d/folder"
try ln -s /etc/passwd "$d/link"
try ln "$HVD_HOSTFILE" "$d/second"
try mkfifo "$d/fifo"
try rm -f "$HVD_TOKEN_FILE"
try mv "$HVD_HOSTFILE" "$d/moved"
try mv "$d" "$d.moved"
try rmdir "$d"
try touch "$(dirname "$d")/beside"
try chmod 777 "$d"
for f in "$HVD_TOKEN_FILE" "$HVD_HOSTFILE"; do
    try chmod 666 "$f"
    try dd if=/dev/zero of="$f" bs=1M count=8
    try truncate -s 8M "$f"
done
exit 0
A
chmod 755 "$RUN/attack"
is 'the user changes nothing in the directory of the step' '' "$(user_srun -N2 -n2 "$RUN/attack" 2>&1)"
is 'directory and files are root'"'"'s, and the user reads them' '750 root 640 root 640 root 65 bytes' \
    "$(user_srun -n1 bash -c 'echo $(stat -c "%a %U" "$(dirname "$HVD_TOKEN_FILE")" "$HVD_TOKEN_FILE" "$HVD_HOSTFILE") $(wc -c <"$HVD_TOKEN_FILE") bytes' 2>&1)"
is 'a step occupies less than 1 MiB' 'small' \
    "$(user_srun -n1 bash -c "$RUN/attack >/dev/null; [ \$(du -sk \"\$(dirname \"\$HVD_TOKEN_FILE\")\" | cut -f1) -lt 1024 ] && echo small" 2>&1)"
nothing_left 'nothing is left after these steps'

# a process of the user, outside any step, that creates files in every directory it sees
cat >"$RUN/race" <<'R'
#!/bin/bash
cd /
while [ -e "$1.on" ]; do
    for d in "$1"/*/; do
        : >"$d$RANDOM" && echo "created in $d"
        ln -s /etc "$d$RANDOM" && echo "linked in $d"
        cd "$d" # the directory is in use while it is removed
    done 2>/dev/null
done
R
chmod 755 "$RUN/race"
: >"$RUNDIR.on"
UID_GID=65534:65534 "$HERE/on" node1 "$RUN/race" "$RUNDIR" >"$RUN/race.out" &
racer=$!
start=$SECONDS
out=$(for _ in 1 2 3 4 5; do user_srun -N2 -n4 --ntasks-per-node=2 bash -c 'echo ended' 2>&1; done | sort | uniq -c | tr -s ' ')
is 'steps end beside a process of the user that fills and races' ' 20 ended' "$out"
if [ $((SECONDS - start)) -lt 100 ]; then ok 'and they end soon'; else not_ok 'and they end soon' "after $((SECONDS - start)) s"; fi
nothing_left 'and leave nothing'
rm "$RUNDIR.on"
wait "$racer"
is 'which could create nothing' '' "$(cat "$RUN/race.out")"

# a file system of the user's on the folder for pages, whose program never answers: root must not ask it
cat >"$RUN/hung.py" <<'P'
import ctypes, os, sys
options = f"fd={os.open('/dev/fuse', os.O_RDWR)},rootmode=40000,user_id=65534,group_id=65534,allow_other"
print("mounted", ctypes.CDLL(None).mount(b"hung", sys.argv[1].encode(), b"fuse", 0, options.encode()), flush=True)
sys.stdin.read()
P
is_idle() { [ -z "$(ctl squeue -h)" ]; }
name='a step ends beside a FUSE file system of its user that never answers'
if [ -c /dev/fuse ]; then
    for f in said go; do rm -f "$RUN/$f" && mkfifo "$RUN/$f" && chmod 666 "$RUN/$f"; done
    exec 8<>"$RUN/said" 9<>"$RUN/go"
    user_srun -N1 -n1 -w node1 bash -c 'echo "$HVD_STATS_DIR" >"$0/said"; read -r _ <"$0/go"; echo ended' "$RUN" >"$RUN/hung.out" 2>&1 &
    step=$!
    read -rt 120 pages <&8
    coproc "$HERE/on" node1 python3 "$RUN/hung.py" "$pages"
    fuse=$COPROC_PID stdin=${COPROC[1]}
    read -rt 60 mounted <&"${COPROC[0]}"
    echo go >&9
    if within 60 is_idle; then has "$name" "$mounted, $(cat "$RUN/hung.out")" 'mounted 0, ended'; else not_ok "$name" "$(ctl squeue; cat "$RUN/hung.out")"; fi
    exec {stdin}>&- 8>&- 9>&- # the kernel now answers for the program
    wait "$fuse" "$step"
    "$HERE/on" node1 umount "$pages"
    "$HERE/on" node1 rm -r "$pages"
else
    skip "$name" 'this machine has no /dev/fuse'
fi
