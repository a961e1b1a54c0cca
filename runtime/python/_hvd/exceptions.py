# SPDX-License-Identifier: Apache-2.0
"""Exceptions, by Horovod's names. One definition for every name they are reached by."""


class HorovodInternalError(RuntimeError):
    """A collective failed: a rank was lost, ranks disagree, or the world was shut down.

    The text is the runtime's and names the cause.
    """


class HostsUpdatedInterrupt(RuntimeError):
    """The set of hosts changed while an elastic job ran."""

    def __init__(self, skip_sync):
        super().__init__()
        self.skip_sync = skip_sync


class StateLostError(RuntimeError):
    """Parts of an elastic state are lost, because the ranks that had them and their copies have gone.

    All ranks of the world raise it, and the state has forgotten its commits: load the last checkpoint,
    and call the elastic function again.
    """


def get_version_mismatch_message(name, version, installed_version):
    return (
        f"Framework {name} installed with version {installed_version} but found version "
        f"{version}.\n             This can result in unexpected behavior including runtime "
        "errors.\n             Reinstall Horovod using `pip install --no-cache-dir` to build "
        "with the new version."
    )


class HorovodVersionMismatchError(ImportError):
    """Kept for scripts that catch it: one build serves all framework versions, so never raised."""

    def __init__(self, name, version, installed_version):
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version
