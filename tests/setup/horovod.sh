#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# horovod.sh [tf]: prints the path of a virtual environment with the original Horovod, built against
# Debian's PyTorch, Open MPI and Gloo; with "tf" against TensorFlow 2.12 and Open MPI (5 to 30 minutes, once;
# HOROVOD_JOBS=2 compilers at a time).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
"$here/deb.sh" horovod
# CMake takes the first MPI in PATH, which may be MPICH.
mpi=$(mktemp -d)
trap 'rm -rf "$mpi"' EXIT
for tool in mpicc mpicxx mpic++ mpirun mpiexec; do
    ln -s "$(command -v "$tool.openmpi")" "$mpi/$tool"
done
# Not from pip's cache, which may hold a wheel that was built with other settings.
export PIP_NO_CACHE_DIR=1
export HOROVOD_WITH_MPI=1 HOROVOD_WITHOUT_MXNET=1 MAKEFLAGS="-j${HOROVOD_JOBS:-2}"
if [ "${1:-}" = tf ]; then
    export HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_GLOO=1
else
    export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_TENSORFLOW=1
fi
PATH=$mpi:$PATH "$here/venv.sh" "horovod${1:-}" || {
    echo "ringmaster: the original Horovod could not be installed; the reason is above" >&2
    exit 1
}
