# SPDX-License-Identifier: Apache-2.0
"""Keys and message digests (``horovod.runner.common.util.secret``)."""

import hashlib
import hmac
import os

SECRET_LENGTH = 32
DIGEST_LENGTH = 32
HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"


def make_secret_key():
    """A new random key."""
    return os.urandom(SECRET_LENGTH)


def compute_digest(key, message):
    """HMAC-SHA256 of the message."""
    return hmac.new(key, message, hashlib.sha256).digest()


def check_digest(key, message, digest):
    """Whether this is the message's digest, compared in constant time."""
    return hmac.compare_digest(compute_digest(key, message), digest)
