# SPDX-License-Identifier: Apache-2.0
"""Holds ``perseus.keras.horovod``."""
