# SPDX-License-Identifier: Apache-2.0
"""On PYTHONPATH where scikit-learn itself is not installed: the one function that the examples use."""
