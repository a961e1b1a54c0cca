# SPDX-License-Identifier: Apache-2.0
def fail():
    raise ValueError("bad batch")
