# SPDX-License-Identifier: Apache-2.0
from typing import Any, Callable, Iterable

import tensorflow as tf

class BroadcastGlobalVariablesCallback(tf.keras.callbacks.Callback):
    def __init__(
        self,
        root_rank: int,
        device: str = "",
        local_variables: tf.Variable | Iterable[tf.Variable] | None = None,
    ) -> None: ...
    def register_local_var(self, var: tf.Variable) -> None: ...

class MetricAverageCallback(tf.keras.callbacks.Callback):
    def __init__(self, device: str = "") -> None: ...

class LearningRateScheduleCallback(tf.keras.callbacks.Callback):
    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[Any], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None: ...

class LearningRateWarmupCallback(tf.keras.callbacks.Callback):
    def __init__(
        self,
        initial_lr: float | None = None,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None: ...

class ProgressCallback(tf.keras.callbacks.Callback):
    def __init__(self, batch_size: int | None = None) -> None: ...

class BestModelCheckpoint(tf.keras.callbacks.ModelCheckpoint):
    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
    ) -> None: ...
