# SPDX-License-Identifier: Apache-2.0
"""Elastic states in files: save_to() and load_from() of TorchState, and of variables as arrays."""

import os
import pathlib
import tempfile

import horovod.torch as hvd
import numpy as np
import torch
from _hvd import checkpoint
from _hvd.elastic import ArraysState
from checks import check, main

hvd.init()
temporary = tempfile.TemporaryDirectory()  # removed when this rank ends
# Rank 0's. A check that uses it ends in a collective call, or rank 0 could remove it too early.
FOLDER = pathlib.Path(hvd.broadcast_object(temporary.name))


def torch_state(seed, **more):
    torch.manual_seed(seed)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    sampler = hvd.elastic.ElasticSampler(range(24), shuffle=False)
    return hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, **more)


def one_step(state):
    state.optimizer.zero_grad()
    state.model(torch.ones(1, 3)).sum().backward()
    state.optimizer.step()


class Arrays(ArraysState):
    def __init__(self, *shapes, **kwargs):
        self.variables = [np.zeros(shape) for shape in shapes]
        super().__init__(hvd.broadcast_object, hvd.rank, **kwargs)

    def _variables(self):
        return self.variables

    def _read(self, variables):
        return [variable.copy() for variable in variables]

    def _write(self, pairs):
        for variable, value in pairs:
            variable[...] = value


def raises(error, function, *args):
    try:
        function(*args)
    except error as e:
        return str(e)
    raise AssertionError(f"no {error.__name__}")


@check
def a_torch_state_continues_from_its_file():
    state = torch_state(hvd.rank())
    state.sync()
    one_step(state)
    state.sampler.record_batch(0, 2)
    state.epoch = 3
    state.commit()
    state.epoch = 4  # not committed, so not in the file
    path = FOLDER / "torch"
    state.save_to(path)
    hvd.barrier()
    assert os.listdir(FOLDER) == ["torch"]
    other = torch_state(100 + hvd.rank())
    assert other.load_from(path)
    other.sync()
    assert other.epoch == 3
    assert torch.equal(other.model.weight, state.model.weight)
    assert other.sampler.processed_num == 2 * hvd.size()
    assert len(other.sampler.remaining_indices) == 24 - 2 * hvd.size()
    one_step(state)
    one_step(other)
    assert torch.equal(other.model.weight, state.model.weight)  # the optimizer's moments too


@check
def arrays_continue_from_their_file():
    state = Arrays(3, (2, 2), step=0)
    state.variables[1][...] = 7
    state.step = 5
    state.commit()
    state.save_to(FOLDER / "arrays")
    hvd.barrier()
    other = Arrays(3, (2, 2), step=0)
    assert other.load_from(FOLDER / "arrays")
    assert other.step == 5 and (other.variables[1] == 7).all()
    said = raises(ValueError, Arrays(3, step=0).load_from, FOLDER / "arrays")
    assert said.startswith("elastic state: the 2 saved variables differ from this state's 1"), said
    said = raises(ValueError, Arrays(3, (2, 2), epoch=0).load_from, FOLDER / "arrays")
    assert "this state has the attributes ['epoch'], and the saved one ['step']" in said, said


@check
def a_file_that_is_not_there():
    assert not torch_state(0).load_from(FOLDER / "none")


@check
def a_write_that_fails_leaves_the_file_before():
    path = pathlib.Path(temporary.name) / "failed"
    checkpoint.write(path, lambda file: file.write(b"whole"))

    def write_to(file):
        file.write(b"part")
        raise OSError("no space")

    assert raises(OSError, checkpoint.write, path, write_to) == "no space"
    assert path.read_bytes() == b"whole"
    assert not os.path.exists(f"{path}.new")


main(hvd.rank())
