# SPDX-License-Identifier: Apache-2.0
"""Refuses gradients that torch's DistributedDataParallel (DDP) reduces too.

Both write gradients during backward(): they would be averaged twice, or overwritten, and ranks would
diverge. DDP keeps no list of its models and leaves no mark on a parameter, so they are found among the
garbage collector's objects: when an optimizer gets parameters, for a model that is DDP already, and at its
first backward(), for one that was wrapped later (Accelerate's prepare()).
"""

import gc

import torch
import torch.distributed as dist

# Whether a DDP model may exist: each needs a process group. Called for each gradient.
is_possible = dist.is_initialized if dist.is_available() else bool


def _reduced():
    """Ids of the parameters that living DDP models reduce, those in groups of one rank too."""
    ddp = torch.nn.parallel.DistributedDataParallel
    found = set()
    for model in [o for o in gc.get_objects() if issubclass(type(o), ddp)]:
        if "reducer" in vars(model):  # else it is being built
            named, ignored = model.module.named_parameters(), model.parameters_to_ignore
            found.update(id(p) for name, p in named if p.requires_grad and name not in ignored)
    return found


def refuse_ddp(names):
    """Raises ValueError if a DDP model reduces one of these parameters. names: {parameter: name}."""
    if not is_possible():
        return
    reduced = _reduced()
    if not any(id(p) in reduced for p in names):
        return
    gc.collect()  # a model that was dropped may be part of a reference cycle
    reduced = _reduced()
    for p, name in names.items():
        if id(p) in reduced:
            raise ValueError(
                f"DistributedDataParallel and hvd.DistributedOptimizer would both reduce the gradient of "
                f"{name}: use the plain optimizer with a DistributedDataParallel model, or do not wrap the "
                "model (Accelerate's prepare() wraps it where a process group exists)"
            )
