# SPDX-License-Identifier: Apache-2.0
"""Mounts a file system of FUSE whose server never answers: dead_server.py FOLDER [FILE].

It prints a line when the file system is there, or exits with 1 and a sentence. It ends, and what waits fails, when its standard
input ends or FILE exists."""

import ctypes
import os
import select
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
path, until = sys.argv[1].encode(), sys.argv[2] if len(sys.argv) > 2 else ""
try:
    device = os.open("/dev/fuse", os.O_RDWR)
except OSError as e:
    sys.exit(f"no FUSE: {e}")
options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
if LIBC.mount(b"dead", path, b"fuse", 0, options) != 0:
    sys.exit(f"FUSE cannot be mounted: {os.strerror(ctypes.get_errno())}")
print("mounted", flush=True)
while not (until and os.path.exists(until)) and not select.select([0], [], [], 0.1)[0]:
    pass
os.close(device)
LIBC.umount2(path, 2)  # MNT_DETACH
