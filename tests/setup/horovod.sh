#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# horovod.sh: prints the path of a virtual environment that holds the original Horovod, built against
# Debian's PyTorch and Open MPI (3 to 15 minutes, once; HOROVOD_JOBS=2 compilers at a time).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
"$here/deb.sh" horovod
# CMake takes the first MPI in PATH, which may be MPICH.
mpi=$(mktemp -d)
trap 'rm -rf "$mpi"' EXIT
for tool in mpicc mpicxx mpic++ mpirun mpiexec; do
    ln -s "$(command -v "$tool.openmpi")" "$mpi/$tool"
done
export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_MPI=1 HOROVOD_WITHOUT_GLOO=1 \
    HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 MAKEFLAGS="-j${HOROVOD_JOBS:-2}"
PATH=$mpi:$PATH "$here/venv.sh" horovod || {
    echo "ringmaster: the original Horovod could not be installed; the reason is above" >&2
    exit 1
}
