# SPDX-License-Identifier: Apache-2.0
"""DistributedGradientTape, and the gradient reduction that it shares with the optimizers.

    tape.gradient(loss, sources)
        |  the wrapped tape computes this rank's gradients
        v
    reduce_but_local()          skips local sources; by default divides theirs by the number of ranks
        |
        v
    _make_allreduce_grads_fn()  the keras and v1 optimizers call it too
        |  eagerly: inside a tf.function, so that the operations of one step overlap; in a graph: directly
        v
    allreduce, or grouped_allreduce for groups

A process set of one rank, or one without this rank, reduces nothing. This is decided while a graph is
built, so a tf.function that was traced in one world cannot be used in another.

Reduced gradients are marked (marks.py), so that they are reduced once where both the tape and the optimizer
are distributed.
"""

import functools
import re
import typing
import warnings

import tensorflow as tf

from _hvd import handles
from _hvd.basics import Average, Sum, check_reduce_op
from _hvd.options import check_predivide, named_options, renamed_groups
from _hvd.process_sets import ProcessSet, global_process_set, is_alone, process_set_id
from _hvd.tensorflow import marks
from _hvd.tensorflow.completion import in_turn
from _hvd.tensorflow.compression import Compression, has_feedback
from _hvd.tensorflow.reductions import allreduce, divided, grouped_allreduce, number_of_ranks
from _hvd.tensorflow.util import inner_variable
from _hvd.util import label_of_place, split_list

_TAPE = "DistributedGradientTape"
_NUMBERS = "_hvd_numbers"  # of a variable: {(world, process set, reducer, name): its number}
_met = {}  # the last number of each key: {(world, process set, reducer, name): number}
_LOCAL = "its size"  # the mark of a local gradient, which was divided but not reduced


class _Same:
    """Makes any object usable as a key: one that cannot be hashed is compared by identity."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value is other.value or (self._is_hashable() and bool(self.value == other.value))

    def __hash__(self):
        return hash(self.value) if self._is_hashable() else id(self.value)

    def _is_hashable(self):
        return type(self.value).__hash__ is not None


def identity_of(variable):
    """Returns the id() of a variable: of the TensorFlow variable inside a Keras 3 one, which has several
    wrappers. Valid as long as the caller holds the variable."""
    return id(inner_variable(variable))


class LocalSources:
    """A set of the variables and tensors whose gradients are not reduced. It holds references to them."""

    def __init__(self):
        self._sources = {}  # {identity: source}; the reference keeps the identity from being reused

    def add(self, source):
        self._sources[identity_of(source)] = source

    def __contains__(self, source):
        return identity_of(source) in self._sources

    def __len__(self):
        return len(self._sources)


def reduce_but_local(reduce, grads, sources, local, scale_local_gradients, process_set):
    """Reduces all gradients but those of local sources; returns a list in the order of `sources`.

    reduce(grads, sources): reduces the rest; returns as many gradients as it is given.
    local: a LocalSources. scale_local_gradients: divides local gradients by the number of ranks, once: in
    a mean over all ranks' data, the data of one rank has that share. A gradient that is None stays None.
    """
    places = [i for i, source in enumerate(sources) if source not in local]
    reduced = reduce([grads[i] for i in places], [sources[i] for i in places])
    results = dict(zip(places, reduced))
    mine = [i for i in range(len(grads)) if i not in results and grads[i] is not None]
    if mine and scale_local_gradients and not is_alone(process_set):
        size, set_id = number_of_ranks(process_set), process_set_id(process_set)
        done = marks.marks_of([grads[i] for i in mine])
        scaled = [i for i, of in zip(mine, done) if of is None or of[0] != set_id]
        results.update((i, divided(grads[i], size)) for i in scaled)
        marks.mark([results[i] for i in scaled], set_id, _LOCAL)
    return [results.get(i, grad) for i, grad in enumerate(grads)]


# --- the reduction -------------------------------------------------------------------------------


class _Settings(typing.NamedTuple):
    name: str
    device_dense: str
    device_sparse: str
    compression: _Same
    sparse_as_dense: bool
    op: int
    gradient_predivide_factor: float
    process_set: ProcessSet
    set_id: int
    size: int
    times: float


def _plan(groups, grads, variables):
    """Returns the groups as a tuple of tuples of indices into grads; None: every gradient is its own group.

    groups: None, a number of groups or a list of variables or lists of them. The last needs `variables`, of
    the same length as grads; without them it raises ValueError. A gradient that is None is in no group.
    """
    there = [i for i, grad in enumerate(grads) if grad is not None]
    if groups is None:
        return None
    if not isinstance(groups, (list, tuple)):
        return tuple(tuple(part) for part in split_list(there, groups) if part)
    if variables is None:
        raise ValueError("groups of variables need the variables: call it with (gradients, variables)")
    left = {identity_of(variables[i]): i for i in there}
    plan = []
    for group in groups:
        members = group if isinstance(group, (list, tuple)) else [group]
        places = [left.pop(identity_of(v)) for v in members if identity_of(v) in left]
        plan.append(tuple(places))
    seen = {i for part in plan for i in part}
    plan.extend((i,) for i in there if i not in seen)
    return tuple(part for part in plan if part)


def _numbered(grads):
    return [f"grad_{i}" for i in range(len(grads))]


def _names(grads, variables):
    """Returns an operation name for each gradient: that of its variable, else one by its index.

    TensorFlow's names of the gradients are not used: they depend on everything else that a rank has built,
    for example its summaries.
    """
    numbered = _numbered(grads)
    names = (getattr(v, "name", None) for v in variables)
    return [
        f"gradient_{re.sub('[^a-zA-Z0-9_]', '_', name)}" if name else number
        for name, number in zip(names, numbered)
    ]


def _of_their_own(names, grads, variables, where):
    """Returns the names as a tuple, with a number added where an earlier variable has the same name (for
    example the kernels of two models).

    A codec with feedback stores what it did not send by name, for the next step. Ranks that use their
    variables in the same order assign the same numbers. where: (world, process set, reducer).
    """

    def own(name, variable):
        numbers = variable.__dict__.setdefault(_NUMBERS, {})
        key = (*where, name)
        if key not in numbers:
            numbers[key] = _met[key] = _met.get(key, -1) + 1
        return f"{name}.{numbers[key]}" if numbers[key] else name

    inner = [inner_variable(v) for v in variables]
    counted = [g is not None and isinstance(v, tf.Variable) for g, v in zip(grads, inner)]
    return tuple(own(n, v) if yes else n for n, v, yes in zip(names, inner, counted))


@in_turn()
def _reduce(settings, grads, plan, use_generic_names, names=None):
    """Reduces a list of gradients, tensors or IndexedSlices; returns a list of the same order.

    In a graph this creates the operations, eagerly it runs them one after another. None stays None.
    plan: groups of indices, see _plan(). names: one for each gradient, by default by index.
    """
    s = settings
    # The runtime divides by the number of ranks after the sum; these two factors are applied in addition.
    divisor = s.gradient_predivide_factor if s.op == Average else 1.0
    options = {
        "device_dense": s.device_dense,
        "device_sparse": s.device_sparse,
        "compression": s.compression.value,
        "op": s.op,
        "prescale_factor": 1.0 / divisor,
        "postscale_factor": divisor * s.times,
        "process_set": s.process_set,
        "ignore_name_scope": use_generic_names,
    }
    with tf.name_scope(s.name + "_Allreduce") as scope:
        if s.sparse_as_dense:
            grads = [tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in grads]
        names = names or _numbered(grads)
        if use_generic_names:  # of the name scopes only the innermost, which TensorFlow numbers
            names = [f"{scope.rstrip('/').split('/')[-1]}.{name}" for name in names]
        if plan is None:
            return [
                None if g is None else allreduce(g, name=name, **options) for g, name in zip(grads, names)
            ]
        results = [None] * len(grads)
        for i, places in enumerate(plan):
            name = names[i] if use_generic_names else names[places[0]]
            reduced = grouped_allreduce([grads[i] for i in places], name=name, **options)
            for i, grad in zip(places, reduced):
                results[i] = grad
        return results


@functools.lru_cache(maxsize=128)
def _subgraph(settings, plan, use_generic_names, names):
    """Returns _reduce() as a tf.function of a list of gradients, cached for all tapes of these settings."""
    return tf.function(
        lambda grads: _reduce(settings, grads, plan, use_generic_names, names),
        autograph=False,
        reduce_retracing=True,
    )


@functools.lru_cache(maxsize=None)
def _warn_reduced_before(name):
    warnings.warn(
        f"{name}: these gradients have been reduced already, so they are used as they are; use one of "
        "hvd.DistributedGradientTape and hvd.DistributedOptimizer, not both",
        stacklevel=5,
    )


@functools.lru_cache(maxsize=None)
def _warn_perhaps_reduced_before(name, reducer, is_sum):
    warnings.warn(
        f"{name}: {reducer} has reduced gradients of these variables before; if these were made of "
        f"them, they are reduced twice, which {'is too much' if is_sum else 'costs time'}: use one of "
        "hvd.DistributedGradientTape and hvd.DistributedOptimizer, not both",
        stacklevel=5,
    )


def _but_reduced(grads, variables, name, op, set_id):
    """Returns the gradients with None in place of those that were already reduced in this process set.

    Warns once where another reducer has reduced them, or may have.
    """
    by = marks.marks_of(grads)
    done = [of is not None and of[0] == set_id for of in by]
    if any(yes and of[1] != name for yes, of in zip(done, by)):
        _warn_reduced_before(name)
    rest = [v for v, g, yes in zip(variables or [], grads, done) if g is not None and not yes]
    for reducer in marks.reducers(rest) - {name}:
        _warn_perhaps_reduced_before(name, reducer, op == Sum)
    marks.remember(variables or [], None)
    return [None if yes else g for g, yes in zip(grads, done)]


def _make_allreduce_grads_fn(
    name,
    device_dense,
    device_sparse,
    compression,
    sparse_as_dense,
    op,
    gradient_predivide_factor,
    groups,
    process_set,
    times=1,
    label=None,
):
    """Returns a function (grads, vars=None, use_generic_names=False) that returns the reduced gradients.

    The result is a list in the order of grads, with their shapes and dtypes; None stays None. Gradients
    that were already reduced in this process set are returned unchanged, except by a tape, whose gradients
    are always new.

    name: prefix of the operations' names, and the mark of what is reduced.
    times: a factor of every result.
    label(index, variable): in a graph, the name of an operation, instead of the variable's name.
    use_generic_names: names operations by index only, for graphs that differ between ranks.
    The other arguments are those of DistributedGradientTape().
    """
    is_tape = name == _TAPE

    def allreduce_grads(grads, vars=None, use_generic_names=False):
        grads = list(grads)
        set_id = process_set_id(process_set)
        if is_alone(process_set):
            return grads
        wanted = grads if is_tape else _but_reduced(grads, vars, name, op, set_id)
        if all(w is None for w in wanted):
            return grads
        settings = _Settings(
            name,
            device_dense,
            device_sparse,
            _Same(compression),
            sparse_as_dense,
            op,
            gradient_predivide_factor,
            process_set,
            set_id,
            process_set.size(),
            times,
        )
        plan = _plan(groups, wanted, vars)
        names = None
        if not tf.executing_eagerly() and vars is not None and not use_generic_names:
            names = [label(i, v) for i, v in enumerate(vars)] if label else _names(wanted, vars)
        if vars is not None and has_feedback(compression):
            names = _of_their_own(names or _numbered(wanted), wanted, vars, (handles.world, set_id, name))
        if tf.executing_eagerly():
            reduced = _subgraph(settings, plan, use_generic_names, names)(wanted)
        else:
            reduced = _reduce(settings, wanted, plan, use_generic_names, names)
        marks.mark(reduced, set_id, name)
        if is_tape:
            marks.remember(vars or [], name)
        return [grad if w is None else r for grad, w, r in zip(grads, wanted, reduced)]

    return allreduce_grads


def check_gradient_options(op, gradient_predivide_factor, num_groups, groups, process_set, stacklevel=4):
    """Checks the arguments that the tape and the optimizers share; returns groups, or None for no groups.

    Raises ValueError or TypeError with Horovod's messages. stacklevel: for the warning about num_groups.
    """
    check_reduce_op(op)
    check_predivide(gradient_predivide_factor, op)
    groups = renamed_groups(num_groups, groups, stacklevel)
    is_number = isinstance(groups, int) and not isinstance(groups, bool) and groups > 0
    if groups is not None and not (isinstance(groups, (list, tuple)) or is_number):
        raise ValueError("groups should be a non-negative integer or a list of list of tf.Variable.")
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"process_set must be a hvd.ProcessSet, not {type(process_set).__name__}")
    return groups


# --- the tape ------------------------------------------------------------------------------------


class _Tape(typing.NamedTuple):
    base: type  # the class of the tape that was wrapped
    allreduce_grads: typing.Callable
    process_set: ProcessSet
    scale_local_gradients: bool
    local: LocalSources
    local_layers: list  # Keras layers; their weights may be created later


class _DistributedGradientTape:
    """The methods that DistributedGradientTape() puts before those of the wrapped tape's class."""

    __slots__ = ()

    def register_local_source(self, source):
        """Excludes the gradients of this variable or tensor from the reduction; keeps a reference to it."""
        self._hvd.local.add(source)

    register_local_var = register_local_source

    def gradient(
        self,
        target,
        sources,
        output_gradients=None,
        use_generic_names=False,
        unconnected_gradients=tf.UnconnectedGradients.NONE,
    ):
        """Returns tf.GradientTape.gradient(), reduced over all ranks; blocks until they have called it too.

        sources: a tensor, a list or any nested structure, the same on all ranks. The result has its
        structure, with the shape and dtype of each source, or None for a source that is not connected.
        use_generic_names: see _make_allreduce_grads_fn(). unconnected_gradients is also accepted as the
        fourth positional argument, where TensorFlow has it.
        """
        if isinstance(use_generic_names, (str, tf.UnconnectedGradients)):
            use_generic_names, unconnected_gradients = False, use_generic_names
        grads = super().gradient(target, sources, output_gradients, unconnected_gradients)
        hvd = self._hvd
        for layer in hvd.local_layers:
            for weight in layer.trainable_weights:
                hvd.local.add(weight)
        reduced = reduce_but_local(
            lambda some, of: hvd.allreduce_grads(some, of, use_generic_names),
            tf.nest.flatten(grads),
            tf.nest.flatten(sources),
            hvd.local,
            hvd.scale_local_gradients,
            hvd.process_set,
        )
        return tf.nest.pack_sequence_as(sources, reduced)

    def get_local_and_global_gradients(
        self, target, sources, output_gradients=None, use_generic_names=False
    ):
        """Returns gradient() as two lists of (source, gradient): the local ones, and the reduced ones."""
        grads = self.gradient(target, sources, output_gradients, use_generic_names)
        pairs = list(zip(tf.nest.flatten(sources), tf.nest.flatten(grads)))
        local = [(s, g) for s, g in pairs if s in self._hvd.local]
        return local, [(s, g) for s, g in pairs if s not in self._hvd.local]

    def jacobian(self, *args, **kwargs):
        _refuse_jacobian("jacobian")

    def batch_jacobian(self, *args, **kwargs):
        _refuse_jacobian("batch_jacobian")


def _refuse_jacobian(name):
    raise NotImplementedError(
        f"hvd.DistributedGradientTape reduces gradient() only: call {name}() of the wrapped tape, "
        "for this rank's data"
    )


@functools.lru_cache(maxsize=None)
def _distributed_class(base):
    return type(base.__name__, (_DistributedGradientTape, base), {"__slots__": ("_hvd",)})


def _wrap(gradtape, local_layers, options):
    """Returns a distributed tape that shares the state of gradtape: both see what either records later."""
    if not isinstance(gradtape, tf.GradientTape):
        raise TypeError(f"gradtape must be a tf.GradientTape, not {type(gradtape).__name__}")
    is_wrapped = isinstance(gradtape, _DistributedGradientTape)
    base = gradtape._hvd.base if is_wrapped else type(gradtape)
    scale, process_set = options.pop("scale_local_gradients"), options["process_set"]
    op, factor = options["op"], options["gradient_predivide_factor"]
    num_groups = options.pop("num_groups")
    groups = check_gradient_options(op, factor, num_groups, options["groups"], process_set, stacklevel=5)
    options["groups"] = groups
    tape = object.__new__(_distributed_class(base))
    tape.__dict__ = gradtape.__dict__
    tape._hvd = _Tape(
        base,
        _make_allreduce_grads_fn(_TAPE, **options, label=label_of_place),
        process_set,
        scale,
        LocalSources(),
        local_layers,
    )
    return tape


@named_options
def DistributedGradientTape(
    gradtape,
    device_dense="",
    device_sparse="",
    compression=Compression.none,
    sparse_as_dense=False,
    op=Average,
    gradient_predivide_factor=1.0,
    num_groups=0,
    groups=None,
    process_set=global_process_set,
    scale_local_gradients=True,
):
    """Returns a tape whose gradient() returns the gradients of gradtape reduced over all ranks.

    gradtape: a tf.GradientTape; both tapes share what is recorded. TypeError for anything else.
    device_dense, device_sparse: the device of the operations for tensors and for IndexedSlices.
    compression: how gradients are sent, hvd.Compression.fp16 for example.
    sparse_as_dense: converts IndexedSlices to dense tensors before the reduction.
    op: hvd.Average, hvd.Sum or hvd.Adasum.
    gradient_predivide_factor: with Average, divides by it before the sum and multiplies by it after.
    groups: a number of groups, or lists of variables, whose gradients are reduced together. num_groups is
        its old name.
    process_set: the ranks that reduce; on other ranks gradient() is the wrapped one's.
    scale_local_gradients: divides the gradients of register_local_source() by the number of ranks.
    """
    return _wrap(gradtape, [], {k: v for k, v in locals().items() if k != "gradtape"})


def _is_layer(value):
    return hasattr(value, "trainable_weights") and callable(value)


@named_options
def PartialDistributedGradientTape(
    gradtape,
    device_dense="",
    device_sparse="",
    compression=Compression.none,
    sparse_as_dense=False,
    op=Average,
    gradient_predivide_factor=1.0,
    num_groups=0,
    groups=None,
    process_set=global_process_set,
    local_layers=None,
    scale_local_gradients=True,
):
    """Returns a DistributedGradientTape that does not reduce the gradients of local_layers.

    local_layers: a Keras layer or a list of them, with the weights that they create later. ValueError for
    anything else. The other arguments are those of DistributedGradientTape().
    """
    options = {k: v for k, v in locals().items() if k not in ("gradtape", "local_layers")}
    layers = [local_layers] if _is_layer(local_layers) else list(local_layers or [])
    if not all(_is_layer(layer) for layer in layers):
        raise ValueError("All local layers must be of tf.keras.layers.Layer type.")
    return _wrap(gradtape, layers, options)


__all__ = ["DistributedGradientTape", "PartialDistributedGradientTape"]
