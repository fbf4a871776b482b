"""tutti: collectives with the latency of the wire, for NumPy arrays.

    import numpy, tutti

    def body(exchange):
        context = tutti.Context()
        communicator = tutti.Communicator(context, exchange)
        mine, whole = numpy.ones(1), numpy.zeros(1)
        total = communicator.allreduce(mine, whole)     # planned and connected once
        for iteration in range(3):
            total.start()                               # never waits
            total.wait(timeout=5)                       # other Python threads run meanwhile
        print(communicator.rank, whole[0])

    tutti.run_local(2, body)                            # forks two ranks of this machine

Objects may be dropped in any order: each keeps what it needs.
"""
import collections
import ctypes
import time

import numpy  # before the extension, whose own error without it would not be about NumPy

from ._tutti import (Aborted, Communicator, Context, Error, ExactSum, Exchange, InvalidArgument,
                     Operation, PeerFailed, TimedOut, TransportFailed, UserOperator, __version__,
                     _run_local, exact_sum_dtype, tcp_exchange, user_exchange)

__all__ = [
    "Aborted", "Communicator", "Context", "Error", "ExactSum", "Exchange", "InvalidArgument",
    "LocalResult", "Operation", "PeerFailed", "TimedOut", "TransportFailed", "UserOperator",
    "exact_sum_dtype", "mpi_exchange", "run_local", "tcp_exchange", "user_exchange", "user_operator",
]

LocalResult = collections.namedtuple("LocalResult", ["exit_status", "signal"])


def run_local(rank_count, body, *, check=True):
    """Forks ranks of this machine, calls body(exchange) in each, and waits for all of them.

    A rank ends with what the body returns (None: 0), with the status of SystemExit, or with 1 after
    any other exception, of which the other ranks hear.  Returns a LocalResult for each rank; with
    `check`, raises Error if one is not (0, 0).  No object of tutti may exist yet, and no other
    thread may be running: it would stand still until the end.
    """
    results = [LocalResult(*one) for one in _run_local(rank_count, body)]
    wrong = [f"rank {rank} " + (f"was killed by signal {one.signal}" if one.signal else
                                f"ended with status {one.exit_status}")
             for rank, one in enumerate(results) if one != (0, 0)]
    if check and wrong:
        raise Error("run_local: " + ", ".join(wrong))
    return results


def _address_of(function):
    """Where a function of C is: of ctypes or Numba, or a number."""
    if function is None:
        return 0
    if isinstance(function, int):
        return function
    if isinstance(getattr(function, "address", None), int):
        return function.address
    try:
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    except ctypes.ArgumentError:
        raise TypeError("a function of C is expected (ctypes.CFUNCTYPE, numba.cfunc, or its address), "
                        f"not {type(function).__name__}") from None


def user_operator(combine, *, inverse=None, context=0, commutative=False, idempotent=False,
                  exact=False):
    """An operator of your own, for arrays of any type without Python objects.

    `combine(incoming, partial, element_count, context)`, all of them pointers but for the count,
    changes partial[i] to incoming[i] o partial[i].  It is a function of C, such as numba.cfunc makes
    of Python, or ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_size_t, c_void_p).  It must not raise
    or call tutti.
    """
    return UserOperator(_address_of(combine), _address_of(inverse), context, commutative, idempotent,
                        exact, (combine, inverse))


class _MpiFunctions:
    """Exchanges over a duplicate of a communicator of mpi4py."""

    lent = []  # what MPI may still write to after a timeout, for ever

    def __init__(self, communicator, timeout):
        from mpi4py import MPI
        self._mpi = MPI
        self._is_intact = False
        self._communicator, request = communicator.Idup()
        self._wait(request, timeout, self._communicator)
        self._is_intact = True

    def __del__(self):
        # Of a duplicate on which something is outstanding, MPI keeps what it was lent.
        if self._is_intact and not self._mpi.Is_finalized():
            self._communicator.Free()

    def _wait(self, request, timeout, *buffers):
        begin = time.monotonic()
        while not request.Test():
            passed = time.monotonic() - begin
            if timeout is not None and passed > timeout:
                self._is_intact = False
                self.lent.append((request, self._communicator, buffers))
                raise TimeoutError(f"some ranks have not come within {timeout:g} s; MPI does not say "
                                   "which")
            time.sleep(0 if passed < 0.001 else 0.001)

    def allgather(self, mine, timeout):
        everything = bytearray(len(mine) * self._communicator.Get_size())
        request = self._communicator.Iallgather([mine, self._mpi.BYTE], [everything, self._mpi.BYTE])
        self._wait(request, timeout, mine, everything)
        return everything

    def barrier(self, timeout):
        self._wait(self._communicator.Ibarrier(), timeout)


def mpi_exchange(communicator=None, *, timeout=30.0):
    """The ranks of a communicator of mpi4py (None: MPI.COMM_WORLD).  Collective; it is duplicated.

    MPI introduces the ranks to each other; no operation of tutti uses it.  When a rank dies, the
    launcher ends the job.  Drop all objects of tutti before MPI.Finalize(), if you call that.
    """
    if communicator is None:
        from mpi4py import MPI
        communicator = MPI.COMM_WORLD
    for name in ("Idup", "Iallgather", "Ibarrier", "Get_rank", "Get_size"):
        if not hasattr(communicator, name):
            raise TypeError(f"expected an exchange of tutti's or a communicator of mpi4py, not "
                            f"{type(communicator).__name__}")
    functions = _MpiFunctions(communicator, timeout)
    return user_exchange(communicator.Get_rank(), communicator.Get_size(), functions.allgather,
                         functions.barrier)
