# shellcheck shell=bash disable=SC2154 # run.sh sources this: its functions and variables
# SPDX-License-Identifier: Apache-2.0
# hvd-slurm-check: the table, and a sentence for what is wrong on a node. After status.sh, which has made $own.
ln -sfn hvd-agent "$own/hvd-slurm-check"
check() { ctl "$own/hvd-slurm-check" "$@" 2>&1; }
install -d "$RUN/rt/python/_hvd" "$RUN/rt/bin"
version=$("$own/hvd-agent" --version)
: >"$RUN/rt/python/_hvd/__init__.py"
package="$RUN/rt/python/_hvd/_version.py" # as runtime/python/module.mk writes it
echo "RINGMASTER_VERSION = \"$version\"" >"$package"
plugstack "${conf[0]}" "dir=$RUN/rt"
idle_nodes() { [ "$(ctl sinfo -h -t idle -o %D)" = 2 ]; }
within 120 is_idle && within 120 idle_nodes
out=$(check)
is 'hvd-slurm-check: nothing is wrong' 0 $?
release=$(ctl sinfo -V | sed 's/.* //')
is 'hvd-slurm-check: a row for each node' "node1 $version $version $version $release ok eth0
node2 $version $version $version $release ok eth0" \
    "$(awk '/^node/ {print $1, $2, $3, $4, $5, $6, $7}' <<<"$out")"
has 'hvd-slurm-check: says so' "$out" 'No problem on 2 nodes.'
within 120 idle_nodes
is 'hvd-slurm-check --nodelist, as an unprivileged user' 'node2' "$(UID_GID=65534:65534 check --nodelist=node2 | awk '/^node/ {print $1}')"
has 'hvd-slurm-check: a partition that is not there' "$(check -p nowhere)" 'hvd-slurm-check: Slurm knows no such node or partition'
is 'hvd-slurm-check: an unknown option' 2 "$(check --foo >/dev/null; echo $?)"

echo "required spank_hvd.so ${conf[0]} dir=$RUN/rt" >"$RUN/etc/plugstack.conf"
within 120 idle_nodes
out=$(check)
is "hvd-slurm-check: a plugin named without a folder is in Slurm's PluginDir" "0 $version $version" \
    "$? $(awk '/^node/ {print $2}' <<<"$out" | tr '\n' ' ' | sed 's/ $//')"
plugstack "${conf[0]}" "dir=$RUN/rt"

echo 'RINGMASTER_VERSION = "8.8.8"' >"$package"
install -d "$RUN/other" # as long as the own version, so that the file stays as it is
sed -e "s/@(#)spank_hvd $version/@(#)spank_hvd 9.9.9/" "$PLUGIN" >"$RUN/other/spank_hvd.so"
node2() { "$HERE/on" node2 "$@"; }
echo "required $RUN/other/spank_hvd.so dir=$RUN/rt run_dir=/proc/version" >"$RUN/plugstack.other"
node2 mount --bind "$RUN/plugstack.other" "$RUN/etc/plugstack.conf" # node2 alone sees it
within 120 idle_nodes
out=$(check)
is 'hvd-slurm-check: problems are the exit code' 1 $?
has 'hvd-slurm-check: another version of the plugin and of the package on a node, and its run_dir' "$out" \
    "node2: spank_hvd.so is version 9.9.9, but $version where srun runs" \
    'node2: the Python package is version 8.8.8, but spank_hvd.so is 9.9.9' \
    'node2: /proc/version is no directory of root'
node2 umount "$RUN/etc/plugstack.conf"
rm -r "$RUN/rt/python"
: >"$RUN/plugstack.other"
node2 mount --bind "$RUN/plugstack.other" "$RUN/etc/plugstack.conf"
within 120 idle_nodes
out=$(check)
has 'hvd-slurm-check: a node without the plugin, and no Python package' "$out" \
    "node2: $RUN/etc/plugstack.conf has no line with spank_hvd.so" 'node1: no Python package: '
node2 umount "$RUN/etc/plugstack.conf"
ctl scontrol update nodename=node2 state=drain reason=test # a node that is down and answers is soon idle again
out=$(check --nodelist='node[1-2]')
rc=$?
has 'hvd-slurm-check: a node that is drained is named, the other is asked' "$rc $out" '1 NODE' \
    'node2: not idle (drained)' "node1        $version"
ctl scontrol update nodename=node2 state=resume
within 120 idle_nodes
