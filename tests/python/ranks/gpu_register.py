# SPDX-License-Identifier: Apache-2.0
"""hvd.register_buffer(): lifetime, registered traffic, refused buffers, and NCCL without support.

The fake NCCL ends the test where a call finds its memory registered on some ranks only, or a buffer goes
while a kernel may use it. With an NCCL that cannot register (HVD_FAKE_NCCL below 21900) everything else
works.
"""

import gc
import os
import re
import warnings
import weakref

import horovod.torch as hvd
import torch
from _hvd import _native, handles
from checks import check, check_if, expect_error, main
from fake_cuda import to_gpu
from gpu_steps import N, R, backward, check_step, optimizer_of, parameters

torch.set_num_threads(1)
CAN = int(os.environ.get("HVD_FAKE_NCCL", "22705")) >= 21900
TOTAL = N * (N + 1) / 2


def registered_bytes():
    return int(re.search(r"^hvd_device_registered_bytes_total\S* (\d+)", _native.stats_text(), re.M)[1])


def buffer_of(n):
    """A flat tensor and what registering it gave, with its warnings."""
    flat = to_gpu(torch.zeros(n))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        made = hvd.register_buffer(flat)
    return flat, made, said


def summed(tensor, name):
    """So many bytes of the sum were in registered memory."""
    before = registered_bytes()
    tensor.fill_(R + 1.0)
    handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name=name)
    _native.wait(handle)  # counted is what has ended
    hvd.synchronize(handle)
    assert tensor.tolist() == [TOTAL] * tensor.numel(), tensor
    return registered_bytes() - before


@check
def what_lies_in_one_is_registered_until_it_is_given_back():
    flat, made, said = buffer_of(4000)
    assert made.is_registered == CAN and made.tensor.data_ptr() == flat.data_ptr(), made
    used = summed(flat[100:1100], "part")
    assert (used >= 4000) == CAN and (used == 0) == (not CAN), used
    assert summed(to_gpu(torch.zeros(1000)), "elsewhere") == 0
    made.deregister()
    assert not made.is_registered and not handles.registered
    assert summed(flat[100:1100], "part") == 0
    made.deregister()  # nothing happens
    if CAN:
        assert not said and made.problem == "" and "not registered any more" in repr(made), made


@check_if(not CAN)
def below_2_19_it_warns_once_and_training_continues():
    flat, made, said = buffer_of(1000)
    assert (
        "rank 0 (host" in made.problem and "has no ncclCommRegister, which came with 2.19" in made.problem
    )
    assert len(said) == (R == 0), said
    if R == 0:
        assert said[0].category is RuntimeWarning and said[0].filename == __file__, said[0]
        assert str(said[0].message).endswith("; its tensors are sent unregistered"), said[0]
    assert made.problem in repr(made)
    assert summed(flat, "continues") == 0


@check
def a_block_of_code_has_it():
    flat = to_gpu(torch.zeros(64, 50))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with hvd.register_buffer(flat) as made:
            assert made.is_registered == CAN
            assert (summed(flat[3], "row") > 0) == CAN
        assert not made.is_registered
        try:
            with hvd.register_buffer(flat) as made:
                raise KeyError("this rank's")
        except KeyError:
            pass
    assert made.is_registered == CAN, "it waited for ranks that need not come"
    made.deregister()


@check
def gradients_in_a_flat_buffer_are_reduced_where_they_lie():
    flat, made, _ = buffer_of(60)
    named = parameters(6)
    for i, (_, p) in enumerate(named):
        p.grad = flat[10 * i : 10 * i + 10]
    optimizer = optimizer_of(named)
    before = registered_bytes()
    backward(named)
    optimizer.step()
    handles.settle()
    check_step(named)
    assert (registered_bytes() - before >= 240) == CAN
    made.deregister()


@check
def what_cannot_be_registered_is_refused():
    x = to_gpu(torch.zeros(6, 4))
    expect_error(ValueError, ["only memory on a GPU"], hvd.register_buffer, torch.zeros(4))
    expect_error(ValueError, ["(4, 6)", "gaps"], hvd.register_buffer, x.t())
    expect_error(ValueError, ["gaps"], hvd.register_buffer, x[:, :2])
    expect_error(ValueError, ["only memory on a GPU"], hvd.register_buffer, to_gpu(torch.zeros(0)))
    expect_error(TypeError, ["torch.Tensor", "list"], hvd.register_buffer, [1.0])
    expect_error(TypeError, ["process_set"], hvd.register_buffer, x, process_set=0)
    assert not handles._pending and not handles.registered


@check
def its_memory_lives_as_long_as_nccl_knows_it():
    flat, made, _ = buffer_of(1000)
    if not CAN:
        return
    seen = weakref.ref(made.tensor)
    address = made.tensor.data_ptr()
    del flat, made
    gc.collect()
    assert seen() is not None and seen().data_ptr() == address
    hvd.shutdown()
    gc.collect()
    assert seen() is None and not handles.registered
    hvd.init()


@check
def in_a_new_world_none_is_registered():
    _, made, _ = buffer_of(1000)
    hvd.shutdown()
    assert not made.is_registered
    hvd.init()
    assert not made.is_registered
    made.deregister()  # its world has ended: nothing to do, no rank to wait for
    _, again, _ = buffer_of(1000)
    assert again.is_registered == CAN
    again.deregister()


main(R)
