# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Process 1 of the box "forward": the loopback port by which this machine reaches the API.
export RM_RUN=$1
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
tell_end "$2"
daemon forward python3 "$CLUSTER_DIR/forward.py" "/run/netns/$ID" "$CP_IP" 6443 "$RM_RUN/server"
wait
sleep infinity
