# SPDX-License-Identifier: Apache-2.0
"""Names and groups of the distributed optimizers' parameters, checked.

The names are those of the collective operations, so they must be the same on all ranks; so must the
groups. The error texts are Horovod's.

Invariants of the operations' names (name_in_world)
 - Two parameters never have the same one in a process set, even if their optimizers were given none or the
   models' classes are equal (GANs). A rank that computes the gradients in another order would swap them.
 - A parameter keeps its name as long as it lives, whatever optimizers come and go.
 - Ranks agree on them if they create optimizers of equal names in the same order. Those that are dropped
   before the next gradient is sent do not count, so a rank may create one alone. A copy counts from its own
   first gradient on, so a rank may keep one alone.
"""

import gc
import weakref

import torch

from _hvd import handles
from _hvd.process_sets import global_process_set

_names = {}  # id(parameter) -> (reference to it, {process set: the name of its gradient's operation})
_taken = set()  # (process set, name) that any parameter has had in this world
_world = None  # that of _taken


def start_world():
    """Only the names of living parameters are taken in a new world: a rank that joins has no others."""
    global _world
    if _world == handles.world:
        return
    if _names:
        gc.collect()
    _world = handles.world
    _taken.clear()
    _taken.update(one for _, names in list(_names.values()) for one in names.items())


def name_in_world(p, name, process_set):
    """The name of the operation that reduces p's gradient: `name`, with a number if another parameter has
    had that."""
    start_world()
    key, of_set = id(p), 0 if process_set is global_process_set else tuple(process_set.ranks)
    if key not in _names:
        _names[key] = weakref.ref(p, lambda _: _names.pop(key, None)), {}
    names = _names[key][1]
    if of_set not in names:
        unique, n = name, 1
        while (of_set, unique) in _taken:
            n += 1
            unique = f"{name}#{n}"
        _taken.add((of_set, unique))
        names[of_set] = unique
    return names[of_set]


def duplicates(names):
    """The names that occur more than once, sorted."""
    seen = set()
    twice = set()
    for name in names:
        (twice if name in seen else seen).add(name)
    return sorted(twice)


def numbered(param_groups):
    """Yields each parameter and a name of its place. The name contains the length of its group: optimizers
    of other lengths, which ranks may create in another order, do not meet."""
    for g, group in enumerate(param_groups):
        n = len(group["params"])
        for i, p in enumerate(group["params"]):
            yield p, f"allreduce.noname.{g}.{i}of{n}"


def names_of(named_parameters, param_groups):
    """{parameter: name} of all parameters of an optimizer, from any iterable of (name, parameter)."""
    if named_parameters is None:
        return dict(numbered(param_groups))
    named_parameters = list(named_parameters)
    if any(not isinstance(p, tuple) for p in named_parameters):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually "
            "produced by model.named_parameters()."
        )
    twice = duplicates(name for name, _ in named_parameters)
    if twice:
        raise ValueError(
            f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(twice)}"
        )
    named = {id(p) for _, p in named_parameters}
    unnamed = [p for group in param_groups for p in group["params"] if id(p) not in named]
    if unnamed:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named. "
            f"Python object ids: {', '.join(str(id(p)) for p in unnamed)}"
        )
    return {p: name for name, p in named_parameters}


def check_groups(groups):
    """Horovod's rules for the argument `groups`."""
    if groups is None:
        return
    if not isinstance(groups, list) and not (isinstance(groups, int) and groups > 0):
        raise ValueError("groups should be a non-negative integer or a list of list of torch.Tensor.")
    seen = set()
    for group in groups if isinstance(groups, list) else ():
        for p in group:
            if not isinstance(p, torch.Tensor):
                raise ValueError("groups must consist of torch.Tensor.")
            if id(p) in seen:
                raise ValueError("A parameter can only appear once in groups.")
            seen.add(id(p))


def groups_of(groups, param_groups):
    """The parameters of each group, of those that need gradients: a list of lists, none empty.

    A number splits them into groups of about equal length, in the optimizer's order. All ranks have the
    same, as torch requires for its state.
    """
    if groups is None:
        return []
    params = [p for group in param_groups for p in group["params"] if p.requires_grad]
    if isinstance(groups, list):
        ours = {id(p) for p in params}
        made = [[p for p in group if id(p) in ours] for group in groups]
    else:
        length, longer = divmod(len(params), groups)
        starts = [i * length + min(i, longer) for i in range(groups + 1)]
        made = [params[a:b] for a, b in zip(starts, starts[1:])]
    return [group for group in made if group]
