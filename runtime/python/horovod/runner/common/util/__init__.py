# SPDX-License-Identifier: Apache-2.0
"""Of Horovod's launcher only what training scripts import: ``env``, ``secret``, ``timeout``."""
