# SPDX-License-Identifier: Apache-2.0
"""The line of figures that run.py reads, for programs in Python; timing.h is it for C."""


def print_row(name, n_ranks, size_bytes, times, mean):
    """Times in microseconds; of several ranks the slowest one's."""
    times, n = sorted(float(t) for t in times), len(times)
    figures = ",".join(f"{v:.2f}" for v in (times[n // 2], times[0], times[n * 9 // 10], mean))
    print(f"AR,{name},{n_ranks},{size_bytes},{n},{figures}", flush=True)
