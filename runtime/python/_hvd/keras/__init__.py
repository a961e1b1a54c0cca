# SPDX-License-Identifier: Apache-2.0
"""Everything of ``horovod.keras`` and ``horovod.tensorflow.keras``.

    standalone/      horovod.keras: `import keras`, on TensorFlow, torch or JAX
    of_tensorflow/   horovod.tensorflow.keras: `tf.keras`, whichever that is
    api.py           what both have, made for each one's Keras
    optimizer.py     DistributedOptimizer: finds the kind of an optimizer and makes it distributed
      optimizer3.py    of Keras 3: apply()
      optimizer2.py    of Keras 2, and its legacy optimizers
    settings.py      the arguments, checked; what an optimizer knows while it runs; which Keras it is of
    reduction.py     a list of gradients over all ranks, by back end
    compression.py   how they travel
    callbacks.py     the callbacks, without and with a base class
    variables.py     a model's and an optimizer's variables: read and broadcast, for the callbacks
    values.py        allreduce() and the like of numbers and arrays
    loading.py       load_model
    xla.py           not for models on TensorFlow

How an optimizer is made distributed depends on its class, not on which of the two modules is used.
"""
