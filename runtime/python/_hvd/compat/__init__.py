# SPDX-License-Identifier: Apache-2.0
"""Programs for frameworks of former years, on today's: tf1.py."""
