# SPDX-License-Identifier: Apache-2.0
"""Cannot be collected."""

import horovod.no_such_module


def test_never():
    assert horovod
