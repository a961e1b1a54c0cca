# SPDX-License-Identifier: Apache-2.0
"""Names and groups of the distributed optimizers' parameters, checked.

The names are those of the collective operations, so they must be the same on all ranks; so must the
groups. The error texts are Horovod's.
"""

import torch

from _hvd.torch.functions import broadcast_object


def duplicates(names):
    """The names that occur more than once, sorted."""
    seen = set()
    twice = set()
    for name in names:
        (twice if name in seen else seen).add(name)
    return sorted(twice)


def names_of(named_parameters, param_groups):
    """{parameter: name} of all parameters of an optimizer, from any iterable of (name, parameter)."""
    if named_parameters is None:
        return {
            p: f"allreduce.noname.{g}.{i}"
            for g, group in enumerate(param_groups)
            for i, p in enumerate(group["params"])
        }
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


def groups_of(groups, names, param_groups, process_set):
    """The parameters of each group, of those that need gradients: a list of lists, none empty.

    A number splits them into groups of about equal length, in the order of the set's rank 0, which is
    broadcast: all ranks of the set must call this.
    """
    if groups is None:
        return []
    params = [p for group in param_groups for p in group["params"] if p.requires_grad]
    if isinstance(groups, list):
        ours = {id(p) for p in params}
        made = [[p for p in group if id(p) in ours] for group in groups]
    else:
        order = [names[p] for p in params]
        order = broadcast_object(order, root_rank=process_set.ranks[0], process_set=process_set)
        place = {name: i for i, name in enumerate(order)}
        params.sort(key=lambda p: place.get(names[p], len(place)))
        length, longer = divmod(len(params), groups)
        starts = [i * length + min(i, longer) for i in range(groups + 1)]
        made = [params[a:b] for a, b in zip(starts, starts[1:])]
    return [group for group in made if group]
