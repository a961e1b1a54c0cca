# SPDX-License-Identifier: Apache-2.0
"""Everything of ``horovod.keras`` and ``horovod.tensorflow.keras``.

    standalone/      horovod.keras: `import keras`, on TensorFlow, torch or JAX
    of_tensorflow/   horovod.tensorflow.keras: `tf.keras`, of any version
    api.py           the functions that both have, created for each one's Keras
    optimizer.py     DistributedOptimizer: selects the implementation for an optimizer's class
      optimizer3.py    Keras 3: apply()
      optimizer2.py    Keras 2, and its legacy optimizers
      local.py         what local variables have a part in: infinities, global_clipnorm
      computed.py      both: compute_gradients() and then apply_gradients()
    settings.py      the checked arguments; the state of an optimizer; the Keras that it belongs to
    reduction.py     reduces a list of gradients over all ranks, by back end
    compression.py   `Compression`, by back end
    callbacks.py     the callbacks, without and with a base class
    variables.py     reads and broadcasts the variables of models and optimizers, for the callbacks
    replica.py       the replica guard, after each step
    values.py        allreduce() and similar functions for numbers and arrays
    loading.py       load_model
    xla.py           turns off XLA for models on TensorFlow

How an optimizer is made distributed depends on its class, not on which of the two modules is used.
"""
