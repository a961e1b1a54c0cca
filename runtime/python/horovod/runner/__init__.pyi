# SPDX-License-Identifier: Apache-2.0
from horovod import run as run
