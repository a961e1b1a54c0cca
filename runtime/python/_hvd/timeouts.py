# SPDX-License-Identifier: Apache-2.0
"""A deadline for several steps (``horovod.runner.common.util.timeout``)."""

import time


class TimeoutException(Exception):
    def __init__(self, message):
        super().__init__(message)
        self.message = message


class Timeout:
    """timeout: seconds from now. message: an error message with {activity} in it."""

    def __init__(self, timeout, message):
        self._timeout = timeout
        self._timeout_at = time.monotonic() + timeout
        self._message = message

    def remaining(self):
        return max(0, self._timeout_at - time.monotonic())

    def timed_out(self):
        return time.monotonic() > self._timeout_at

    def check_time_out_for(self, activity):
        """TimeoutException when the time is over."""
        if self.timed_out():
            text = self._message.format(activity=activity).rstrip()
            stop = "" if text.endswith(".") else "."
            raise TimeoutException(f"{text}{stop} Timeout after {self._timeout} seconds.")
