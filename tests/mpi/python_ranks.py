#!/usr/bin/env python3
"""Promise: communicators of mpi4py are taken as they are, whole ones and parts of them."""
import sys

try:
    import numpy as np
    from mpi4py import MPI
except ImportError as missing:
    print(f"skipped: {missing}; python3-numpy and python3-mpi4py are needed")
    sys.exit(77)
import tutti


def total(context, ranks):
    communicator = tutti.Communicator(context, ranks)
    rank, rank_count = ranks.Get_rank(), ranks.Get_size()
    assert (communicator.rank, communicator.rank_count) == (rank, rank_count)
    source, whole = np.zeros(3, np.int64), np.zeros(3, np.int64)
    operation = communicator.allreduce(source, whole)
    for call in range(3):
        source[:] = rank, call, 1
        operation.run(timeout=20)
        assert list(whole) == [sum(range(rank_count)), call * rank_count, rank_count], whole
    everything = np.zeros((rank_count, 3), np.int64)
    communicator.allgather(source, everything).run(timeout=20)
    expected = np.zeros_like(everything)
    ranks.Allgather(source, expected)
    assert np.array_equal(everything, expected), everything


world = MPI.COMM_WORLD
context = tutti.Context(device="soft0", arena_bytes=4 << 20)
total(context, world)
total(context, world.Split(world.Get_rank() % 2, -world.Get_rank()))
exchange = tutti.mpi_exchange(timeout=20.0)
communicator = tutti.Communicator(context, exchange)
communicator.barrier().run(timeout=20)

# A rank that does not come is a timeout with the reason, and MPI is as good as before.
world.Barrier()
if world.Get_rank() == 0:
    try:
        tutti.mpi_exchange(world, timeout=0.05)
        raise AssertionError("met nobody")
    except TimeoutError as error:
        assert "have not come within 0.05 s" in str(error), error
    world.Barrier()
else:
    world.Barrier()
    try:  # the others meet the duplicate that rank 0 has begun
        tutti.mpi_exchange(world, timeout=20.0)
    except TimeoutError:
        pass
world.Barrier()
print(f"rank {world.Get_rank()} passed")
