# SPDX-License-Identifier: Apache-2.0
"""For the keras_*.py scripts: what training must give."""

import json
import os
import warnings

import numpy as np
from keras_flavour import BACKEND, FLAVOUR, N, R, hvd, keras
from keras_models import fit, model, weights
from keras_steps import close, sgd_steps


def expect_weights(made, want, what=""):
    close(weights(made), want, f"{FLAVOUR} {BACKEND} {what}")


def expect_trained(what, optimizer, kind=None, of=keras, factor=N, lr=0.1, steps=1, passes=1, **kwargs):
    """A model that is compiled with this optimizer learns what SGD does with the sum of the gradients (factor=1:
    with their average); returns it. kwargs: options of compile()."""
    made = model(optimizer, kind, of, **kwargs)
    fit(made, steps * passes)
    expect_weights(made, sgd_steps(N, lr, steps, passes, factor), what)
    return made


def expect_alike(vector, what=""):
    """Every rank has this vector."""
    every = np.asarray(hvd.allgather(np.reshape(vector, (1, -1))))
    for rank in range(N):
        close(every[rank], every[0], f"{what}: rank {rank} and rank 0")


def expect_operations(number, function):
    """Calls function, during which rank 0 must take part in so many operations, by its timeline."""
    path = os.path.join(os.environ["CHECKS_DIR"], "timeline.json")
    if R == 0:
        hvd.start_timeline(path)
    function()
    if R == 0:
        hvd.stop_timeline()
    behind = "behind the timeline"
    hvd.allreduce(1.0, name=behind)  # what comes next on other ranks would else be in it, too
    if R == 0:
        with open(path) as f:
            events = json.load(f)
        names = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
        said = [names[e["pid"]] for e in events if e.get("name", "").startswith("NEGOTIATE_")]
        said = [name for name in said if not name.endswith(behind)]
        assert len(said) == (number if N > 1 else 0), said


def expect_warning(words, function):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = function()
    texts = [str(w.message) for w in said]
    assert any(all(word in text for word in words) for text in texts), (words, texts)
    return result
