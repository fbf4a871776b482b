#!/usr/bin/env python3
"""Promise: ranks meet over TCP and by functions in Python; what these raise is the cause of the error;
ranks may be threads, as the lock of the interpreter is not held while one waits; no MPI is loaded; the
program of docs/python.md does what it says."""
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading

try:
    import numpy as np
except ImportError:
    print("skipped: python3-numpy is not installed")
    sys.exit(77)
import tutti

TIMEOUT = 20


def total(exchange, rank, rank_count):
    communicator = tutti.Communicator(tutti.Context(device="soft0", arena_bytes=4 << 20), exchange)
    assert (communicator.rank, communicator.rank_count) == (rank, rank_count)
    whole = np.zeros(2)
    operation = communicator.allreduce(np.array([1.0, rank]), whole)
    for _ in range(3):
        operation.run(TIMEOUT)
    assert list(whole) == [rank_count, sum(range(rank_count))], whole


def error_of(call, kind):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def over_tcp():
    if "TUTTI_RANK" in os.environ:
        rank, rank_count = int(os.environ["TUTTI_RANK"]), int(os.environ["TUTTI_SIZE"])
        if rank > 0:
            exchange = tutti.tcp_exchange()
        else:
            exchange = tutti.tcp_exchange(rank=0, rank_count=rank_count, timeout=TIMEOUT,
                                          rendezvous=os.environ["TUTTI_RENDEZVOUS"],
                                          secret=os.environ["TUTTI_SECRET"])
        total(exchange, rank, rank_count)
        sys.exit(0)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [subprocess.Popen([sys.executable, __file__], env={
        **os.environ, "TUTTI_RANK": str(rank), "TUTTI_SIZE": "3", "TUTTI_SECRET": "open sesame",
        "TUTTI_RENDEZVOUS": f"127.0.0.1:{port}"}) for rank in range(3)]
    assert [one.wait(60) for one in ranks] == [0, 0, 0]
    error = error_of(lambda: tutti.tcp_exchange(rank=0), tutti.InvalidArgument)
    assert "expected rank, rank_count, rendezvous and secret" in str(error), error
    error = error_of(tutti.tcp_exchange, tutti.InvalidArgument)
    assert "TUTTI_RANK" in str(error), error
    error = error_of(lambda: tutti.tcp_exchange(rank=0, rank_count=2, rendezvous=f"127.0.0.1:{port}",
                                                secret="x", timeout=0.1), tutti.TimedOut)
    assert error.code == "timed_out", error.code


class Threads:
    """Exchanges among threads."""

    def __init__(self, count):
        self.meeting = threading.Barrier(count)
        self.brought = [None] * count

    def exchange(self, rank):
        def allgather(mine, timeout):
            self.brought[rank] = mine
            self.meeting.wait(timeout)
            everything = b"".join(self.brought)
            self.meeting.wait(timeout)
            return everything
        return tutti.user_exchange(rank, len(self.brought), allgather, self.meeting.wait)


def by_functions():
    threads, passed = Threads(2), []
    def run(rank):
        total(threads.exchange(rank), rank, 2)
        passed.append(rank)
    ranks = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(60)
    assert sorted(passed) == [0, 1], passed

    context = tutti.Context(device="soft0", arena_bytes=4 << 20)
    def late(*_):
        raise TimeoutError("nobody there")
    def broken(*_):
        return 1 / 0
    for allgather, kind, cause in (
            (lambda mine, timeout: mine[1:], tutti.PeerFailed, ValueError),
            (lambda mine, timeout: 5, tutti.PeerFailed, TypeError),
            (late, tutti.TimedOut, TimeoutError), (broken, tutti.PeerFailed, ZeroDivisionError)):
        exchange = tutti.user_exchange(0, 1, allgather, lambda timeout: None)
        error = error_of(lambda: tutti.Communicator(context, exchange), kind)
        assert isinstance(error.__cause__, cause), repr(error.__cause__)
    error = error_of(lambda: tutti.user_exchange(2, 2, broken, broken), tutti.InvalidArgument)
    assert "rank 2" in str(error), error
    error = error_of(lambda: tutti.Communicator(context, "world"), TypeError)
    assert "a communicator of mpi4py" in str(error), error


def by_the_page():
    page = pathlib.Path(__file__).resolve().parents[3] / "docs/python.md"
    program = re.search(r"```python\n(.*?)```", page.read_text(), flags=re.S).group(1)
    printed = subprocess.run([sys.executable, "-"], input=program, capture_output=True, text=True,
                             timeout=60)
    assert printed.returncode == 0, printed.stderr
    lines = re.findall(r"rank \d: \|x\|\^2 = 500(?!\d)", printed.stdout)  # lines of two ranks may mix
    assert sorted(lines) == [f"rank {rank}: |x|^2 = 500" for rank in range(2)], printed


if __name__ == "__main__":
    over_tcp()
    by_functions()
    by_the_page()
    with open("/proc/self/maps") as maps:
        assert "libmpi" not in maps.read()
    print("passed")
