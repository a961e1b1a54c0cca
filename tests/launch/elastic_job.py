# SPDX-License-Identifier: Apache-2.0
"""An elastic job whose processes do what the test sends; see elastic_member.py.

Messages: runtime/wire/member_message.h."""

import os
import re
import select
import signal
import socket
import struct
import sys

from launched import scratch, start
from tap import DEADLINE_S, read, same, wait_until

MEMBER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "elastic_member.py")
READY, COMMIT, FORM, BREAK, NOTIFY, ENDING = range(1, 7)
REMOVED, ADDED = 1, 2
CLOSED, DONE = 0xFF, 0xFE


def ready_message(slot, incarnation, generation):
    return struct.pack("<BIII", READY, slot, incarnation, generation)


class World:
    """FORM."""

    def __init__(self, packet):
        (
            self.generation, self.rank, self.size, self.local_rank, self.local_size,
            self.cross_rank, self.cross_size, self.n_new, self.port, _,
        ) = struct.unpack_from("<10I", packet, 1)  # fmt: skip
        self.host = packet[41:].decode()

    def __repr__(self):
        return f"world {self.generation}: rank {self.rank} of {self.size}, {self.n_new} new"


class Member:
    """One process of the job."""

    def __init__(self, job, connection, hello):
        place, pid = hello.split()
        self.slot, self.incarnation = map(int, place.split("."))
        self.job, self.connection, self.pid = job, connection, int(pid)
        env = environment_of(pid)
        self.door, self.stats = env["HVD_ELASTIC"].split(":")[0], env["HVD_STATS_DIR"]
        self.generation = 0
        self.packets = []  # of the launcher, not yet taken
        self.words = []  # of do()
        self.n_sent = self.n_done = 0
        self.is_closed = False  # its connection to the launcher

    def do(self, code):
        """Has the process carry out Python."""
        self.n_sent += 1
        self.connection.send(code.encode())

    def does(self, code):
        """The same; waits until it has."""
        self.do(code)
        self.job.until(f"{self} does {code}", lambda: self.n_done == self.n_sent)

    def ready(self, is_last=False):
        """It waits for the next world. Processes of one host are ready in the order of these calls.

        is_last: what horovodrun does then may end the process.
        """
        code = f"launcher.send({ready_message(self.slot, self.incarnation, self.generation)!r})"
        self.do(code) if is_last else self.does(code)

    def settles(self):
        """Waits until horovodrun has received what the process has sent."""
        for i in range(2):  # the first line may overtake a message
            self.says(f"settled {self.slot}.{self.incarnation} {self.n_sent} {i}")

    def commit(self):
        self.does(f"launcher.send({struct.pack('<BI', COMMIT, self.generation)!r})")

    def reports_end(self, why):
        """It has failed, and still exists."""
        message = struct.pack("<BII", ENDING, self.generation, len(why)) + why.encode()
        self.does(f"launcher.send({message!r})")

    def fails(self, line="out of luck", code=3):
        self.do(f"print({line!r}, file=sys.stderr, flush=True); os._exit({code})")

    def says(self, text):
        """Prints a line and waits until horovodrun has; returns it with its prefix."""
        self.do(f"print({text!r}, flush=True)")
        pattern = re.compile(rf".*{re.escape(text)}\n")
        return self.job.until(f"{text} is printed", lambda: pattern.search(self.job.run.out))[0].rstrip()

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

    @property
    def parent(self):
        """The agent of its host."""
        return int(read(f"/proc/{self.pid}/stat").rsplit(")", 1)[1].split()[1])

    def _take(self, kind, what):
        packet = self.job.until(f"{self}: {what}", lambda: self.packets and self.packets.pop(0))
        same(packet[0], kind, f"{self}: {what}, type of the next message")
        return packet

    def formed(self):
        """Its next message is a world."""
        world = World(self._take(FORM, "a world"))
        self.generation = world.generation
        return world

    def broken(self):
        """Its next message: the world is broken; why."""
        packet = self._take(BREAK, "its world breaks")
        same(struct.unpack_from("<I", packet, 1)[0], self.generation, "generation that is broken")
        return packet[9:].decode()

    def notified(self):
        """Its next message: leave at the next commit; the bits of the change."""
        generation, change = struct.unpack_from("<II", self._take(NOTIFY, "to leave its world"), 1)
        same(generation, self.generation, "generation to leave")
        return change

    def heard(self, word):
        self.job.until(f"{self}: {word}", lambda: word in self.words)

    def __repr__(self):
        return f"process {self.slot}.{self.incarnation}"


class Job:
    """horovodrun with elastic_member.py as its command."""

    def __init__(self, folder, *words, starts=None, **more):
        """starts: what starts horovodrun with these words, and returns it as a Program."""
        self.folder, self.members, self.waiting = folder, [], []
        path = f"{folder}/test.socket"
        self.door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.door.bind(path)
        self.door.listen(64)
        words = [*words, sys.executable, "-S", MEMBER, path]
        self.run = starts(*words, **more) if starts else start(folder, *words, **more)

    def _receive(self, connection, member):
        try:
            packet = connection.recv(4096)
        except ConnectionResetError:
            packet = b""
        if not packet:
            connection.close()
        elif member is None:
            self.members.append(Member(self, connection, packet.decode()))
        elif packet[0] == CLOSED:
            member.is_closed = True
        elif packet[0] == DONE:
            member.n_done += 1
        elif packet[0] in (FORM, BREAK, NOTIFY):
            member.packets.append(packet)
        else:
            member.words.append(packet.decode())

    def pump(self, wait_s=0.02):
        """Takes what processes have sent."""
        owners = {m.connection: m for m in self.members if m.connection.fileno() >= 0}
        self.waiting = [c for c in self.waiting if c.fileno() >= 0 and c not in owners]
        for ready in select.select([self.door, *self.waiting, *owners], [], [], wait_s)[0]:
            if ready is self.door:
                self.waiting.append(self.door.accept()[0])
            else:
                self._receive(ready, owners.get(ready))

    def until(self, what, condition, deadline_s=DEADLINE_S):
        def pumped():
            self.pump()
            value = condition()
            if not value and self.run.process.poll() is not None:
                raise AssertionError(f"horovodrun has ended before: {what}\n{self.run.out}{self.run.err}")
            return value

        return wait_until(lambda: f"{what}\n{self.run.err}", pumped, deadline_s)

    def member(self, slot, incarnation=1):
        """That process, once it runs and is connected to the launcher."""

        def find():
            return next((m for m in self.members if (m.slot, m.incarnation) == (slot, incarnation)), None)

        return self.until(f"process {slot}.{incarnation} has started", find)

    def world(self, *slots):
        """The first processes of these slots, in their world of exactly these ranks."""
        members = [self.member(slot) for slot in slots]
        form(*members)
        return members

    def gone(self, *members):
        self.until(f"{members} have ended", lambda: all(m.connection.fileno() < 0 for m in members))

    def said(self, part):
        self.until(f"horovodrun writes {part!r}", lambda: part in self.run.err)

    def end(self, code, deadline_s=DEADLINE_S):
        """It ends with this code and leaves nothing; what it wrote to stderr."""
        same(self.run.end(deadline_s), code, f"exit code\n{self.run.out}{self.run.err}")
        self.nothing_is_left()
        return self.run.err

    def nothing_is_left(self):
        doors = {m.door for m in self.members}
        wait_until(
            "no process is left",
            lambda: not [p for p in os.listdir("/proc") if p.isdigit() and _door(p) in doors],
        )
        wait_until("no file is left", lambda: not scratch(self.folder))
        wait_until("no page is left", lambda: not any(os.path.exists(m.stats) for m in self.members))


def _door(pid):
    """Where a process of an elastic job finds its launcher; None: it is no such process."""
    return environment_of(pid).get("HVD_ELASTIC", ":").split(":")[0] or None


def environment_of(pid):
    try:
        return dict(v.split("=", 1) for v in read(f"/proc/{pid}/environ").split("\0") if "=" in v)
    except PermissionError:  # not ours
        return {}


def form(*members):
    """They are ready and get one world; their places, by the order of members."""
    for m in members:
        m.ready()
    return formed(*members)


def formed(*members):
    """Their next message is a world of exactly these."""
    worlds = [m.formed() for m in members]
    same({w.generation for w in worlds}, {worlds[0].generation}, "generations")
    same({w.size for w in worlds}, {len(members)}, f"sizes of {worlds}")
    return worlds
