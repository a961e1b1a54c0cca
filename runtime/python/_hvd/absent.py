# SPDX-License-Identifier: Apache-2.0
"""Names of Horovod that this version lacks: each raises one clear error.

A missing function must never be replaced by something that trains differently, and must not look like a
typing error of the user either. So every public name exists and raises the reason.
"""

from _hvd._version import RINGMASTER_VERSION


def refuse(what, instead=""):
    """Raises NotImplementedError: "hvd.join() is not in Ringmaster 0.1.0 yet"."""
    text = f"{what} is not in Ringmaster {RINGMASTER_VERSION} yet"
    raise NotImplementedError(f"{text}; {instead}" if instead else text)


def refuse_mpi(what, instead):
    """Raises ValueError with Horovod's text for a back end that does not exist here."""
    raise ValueError(f"Horovod has not been built with MPI support: {what} cannot be used; {instead}")


def absent_function(module, name, instead=""):
    """Returns a function of that name that raises NotImplementedError for all arguments."""

    def function(*args, **kwargs):
        refuse(f"{module}.{name}()", instead)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Not in this version: raises NotImplementedError. {instead}".strip()
    function.hvd_absent = True
    return function


def absent_class(module, name, instead=""):
    """Returns a class of that name that cannot be instantiated (isinstance() with it works)."""

    def __new__(cls, *args, **kwargs):
        refuse(f"{module}.{name}", instead)

    doc = f"Not in this version: raises NotImplementedError. {instead}".strip()
    return type(name, (), {"__new__": __new__, "__doc__": doc, "hvd_absent": True})


class AbsentModule:
    """Replaces a sub-module such as ``hvd.elastic``: every attribute raises NotImplementedError."""

    hvd_absent = True

    def __init__(self, name, instead=""):
        self._name = name
        self._instead = instead

    def __getattr__(self, attribute):
        if attribute.startswith("__"):  # introspection (copy, pickle, inspect), not the user
            raise AttributeError(attribute)
        refuse(f"{self._name}.{attribute}", self._instead)
