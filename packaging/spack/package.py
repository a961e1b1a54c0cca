# SPDX-License-Identifier: Apache-2.0
# Recipe for Spack, in a repository of your own as packages/ringmaster/package.py. No installation
# with it was run. The source is the archive that "make rpm" leaves in build/rpm/SOURCES.
# flake8: noqa: F403, F405
import contextlib
import os

from spack.package import *

with contextlib.suppress(ImportError):  # Spack 1.0 and later
    from spack_repo.builtin.build_systems.makefile import MakefilePackage


class Ringmaster(MakefilePackage):
    """Runs Horovod training jobs on Slurm and plain hosts, without Horovod, MPI or ssh."""

    url = f"file://{os.getcwd()}/ringmaster-0.1.0.tar.gz"
    manual_download = True

    license("Apache-2.0", checked_by="ringmaster")

    version("0.1.0")

    variant("slurm", default=True, description="Slurm's plugin: srun --hvd")

    depends_on("c", type="build")
    depends_on("gmake", type="build")
    depends_on("curl")
    depends_on("jansson")
    depends_on("libmicrohttpd")
    depends_on("libsodium")
    depends_on("libyaml")
    depends_on("openssl")
    depends_on("python@3.8:", type=("build", "run"))
    depends_on("slurm@21-08:", when="+slurm")
    depends_on("munge", when="+slurm")

    @property
    def build_targets(self):
        return self.arguments + ["all"]

    @property
    def arguments(self):
        spec, prefix = self.spec, self.prefix
        arguments = [
            "NATIVE=1",
            "WERROR=",
            "CCACHE=",
            f"PREFIX={prefix}",
            f"RUNTIME_DIR={prefix.lib.ringmaster}",
            f"PY_INCLUDE={spec['python'].headers.directories[0]}",
        ]
        if spec.satisfies("~slurm"):
            return arguments + ["SLURM_INCLUDE="]
        return arguments + [
            f"SLURM_INCLUDE={spec['slurm'].prefix.include}",
            f"MUNGE_INCLUDE={spec['munge'].prefix.include}",
            f"SLURM_LIBDIR={prefix.lib.slurm}",
            f"ENROOT_DIR={prefix.etc.enroot}",
            f"MANDIR={prefix.share.man}",
            f"DOCDIR={prefix.share.doc.ringmaster}",
        ]

    def install(self, spec, prefix):
        make(*self.arguments, "install")
        if spec.satisfies("+slurm"):
            make(*self.arguments, "install-spank")

    def setup_run_environment(self, env):
        env.prepend_path("PYTHONPATH", self.prefix.lib.ringmaster.python)
