#!/usr/bin/env python3
"""Promise: collectives of mpi4py, whose module the interpreter opens, are taken, and their results are
right; with threads, which mpi4py asks for by default, all are left to MPI."""
import ctypes
import sys

try:
    import mpi4py
    import numpy
except ImportError as error:
    print(error)
    sys.exit(77)

THREADS = sys.argv[1] == "threads"
mpi4py.rc.threads = THREADS
from mpi4py import MPI  # noqa: E402

world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size
for call in range(10):
    mine = numpy.arange(5) + rank + call
    total = numpy.zeros_like(mine)
    world.Allreduce(mine, total)
    assert (total == ranks * (numpy.arange(5) + call) + ranks * (ranks - 1) // 2).all(), total
    assert world.allreduce(rank) == ranks * (ranks - 1) // 2
    text = world.bcast({"call": call} if rank == 0 else None)
    assert text == {"call": call}, text
    world.Barrier()

counted = ctypes.CDLL(None).tutti_mpi_calls
for function in (b"MPI_Allreduce", b"MPI_Bcast", b"MPI_Barrier"):
    taken, passed = ctypes.c_ulonglong(), ctypes.c_ulonglong()
    assert counted(function, ctypes.byref(taken), ctypes.byref(passed)) == 0
    assert (taken.value == 0) if THREADS else (taken.value >= 7), (function, taken, passed)
    assert taken.value + passed.value >= 10, (function, taken, passed)
