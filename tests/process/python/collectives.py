#!/usr/bin/env python3
"""Promise: every collective from Python gives what NumPy computes, on 4 forked ranks of 2 nodes, on
other buffers of the same operation, and for every type; what is wrong with an array is refused on
every rank, by its name and with a remedy."""
import ctypes
import gc
import math
import os
import re
import signal
import sys
import threading
import time
import weakref

try:
    import numpy as np
except ImportError:
    print("skipped: python3-numpy is not installed")
    sys.exit(77)
import tutti

RANKS = 4
TIMEOUT = 20  # seconds; nothing here takes one
signals = os.pipe()  # from one rank to others


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def expect_equal(got, expected, what):
    expect(np.array_equal(got, expected), f"{what}: got {got}, expected {expected}")


def refused(call, *texts, kind=tutti.InvalidArgument):
    """The exception of `call`, whose text holds all of `texts`."""
    try:
        call()
    except kind as error:
        for text in texts:
            expect(text in str(error), f"{text!r} is not in {str(error)!r}")
        return error
    raise AssertionError(f"not refused: {texts}")


def value(rank, index=0, call=0):
    return (rank + 1) * 7 + 3 * index + call


def row(rank, count, call=0, dtype=np.float64):
    return np.array([value(rank, i, call) for i in range(count)], dtype)


def reductions(c):
    for dtype in (np.int32, np.uint32, np.int64, np.uint64, np.float16, np.float32, np.float64):
        for name, combine in (("sum", np.add), ("prod", np.multiply), ("min", np.minimum),
                              ("max", np.maximum)):
            source = (row(c.rank, 3) % 5 + 1).astype(dtype)
            target = np.zeros(3, dtype)
            c.allreduce(source, target, name).run(TIMEOUT)
            whole = combine.reduce([(row(r, 3) % 5 + 1).astype(dtype) for r in range(RANKS)])
            expect_equal(target, whole, f"allreduce {name} of {dtype.__name__}")
    bits = np.array([1 << c.rank, 3], np.uint32)
    for name, whole in (("bor", [15, 3]), ("band", [0, 3]), ("bxor", [15, 0]), ("land", [1, 1]),
                        ("lor", [1, 1])):
        target = np.zeros(2, np.uint32)
        c.allreduce(bits, target, name).run(TIMEOUT)
        expect_equal(target, whole, name)
    # In place, in two dimensions, in each agreement, by a schedule by name.
    for agreement in ("identical", "reproducible", "relaxed"):
        both = row(c.rank, 6).reshape(2, 3)
        c.allreduce(both, both, agreement=agreement).run(TIMEOUT)
        expect_equal(both, sum(row(r, 6) for r in range(RANKS)).reshape(2, 3), agreement)
    both = row(c.rank, 2)
    ring = c.allreduce(both, both, "max", algorithm="dissemination", across="flat", per_round=[3])
    ring.run(TIMEOUT)
    expect_equal(both, row(RANKS - 1, 2), "dissemination")
    expect(ring.algorithm == "dissemination" and ring.per_round == [3], ring.algorithm)
    expect(ring.coverage == (2, RANKS) and ring.notify == "immediate", ring.coverage)
    expect("dissemination" in ring.explanation(), ring.explanation())

    for root in (0, RANKS - 1):
        target = np.zeros(3) if c.rank == root else None
        c.reduce(row(c.rank, 3), target, "sum", root).run(TIMEOUT)
        if c.rank == root:
            expect_equal(target, sum(row(r, 3) for r in range(RANKS)), "reduce")
    part = np.full(10, -1.0)
    half = c.reduce(row(c.rank, 10), part, root=0, data_fraction=0.5, rank_fraction=0.5)
    half.run(TIMEOUT)
    expect(half.coverage == (5, 2), half.coverage)
    if c.rank == 0:
        expect_equal(part[5:], np.full(5, -1.0), "reduce of half: the rest")
        expect((part[:5] != -1).all(), part)
    c.synchronize()

    target = np.zeros(3)
    c.scan(row(c.rank, 3), target).run(TIMEOUT)
    expect_equal(target, sum(row(r, 3) for r in range(c.rank + 1)), "scan")
    before = None if c.rank == 0 else np.zeros(3)
    c.exscan(row(c.rank, 3), before).run(TIMEOUT)
    if c.rank > 0:
        expect_equal(before, sum(row(r, 3) for r in range(c.rank)), "exscan")

    source, target = row(c.rank, 2 * RANKS), np.zeros(2)
    c.reduce_scatter(source, target).run(TIMEOUT)
    whole = sum(row(r, 2 * RANKS) for r in range(RANKS))
    expect_equal(target, whole[2 * c.rank:2 * c.rank + 2], "reduce_scatter")
    counts = [1, 0, 2, 3]
    target = np.zeros(counts[c.rank], np.int64)
    c.reduce_scatter(row(c.rank, 6, 0, np.int64), target, "max", counts).run(TIMEOUT)
    begin = sum(counts[:c.rank])
    expect_equal(target, row(RANKS - 1, 6)[begin:begin + counts[c.rank]], "reduce_scatter of counts")


def moves(c):
    for dtype in (np.float64, np.dtype("c16"), np.dtype("S3"), np.bool_, np.int8):
        made = lambda r: np.arange(r, r + 5).astype(dtype)
        buffer = made(2) if c.rank == 2 else np.zeros(5, dtype)
        if c.rank == 2:
            buffer.flags.writeable = False  # the root's is only read
        operation = c.broadcast(buffer, 2)
        operation.run(TIMEOUT)
        expect_equal(buffer, made(2), f"broadcast of {dtype}")
        other = made(3) if c.rank == 2 else np.zeros(5, dtype)
        operation.start(other)
        operation.wait(TIMEOUT)
        expect_equal(other, made(3), f"broadcast of {dtype} on another buffer")
    part = row(0, 10) if c.rank == 0 else np.zeros(10)
    c.broadcast(part, data_fraction=0.35, tree="binomial").run(TIMEOUT)
    expect_equal(part[:4], row(0, 10)[:4], "a part of a broadcast")
    if c.rank > 0:
        expect_equal(part[4:], np.zeros(6), "the rest of it")

    target = np.zeros((RANKS, 3))
    c.allgather(row(c.rank, 3), target).run(TIMEOUT)
    expect_equal(target, [row(r, 3) for r in range(RANKS)], "allgather")
    counts, offsets = [2, 0, 1, 3], [4, 0, 0, 1]
    target = np.full(6, -1)
    c.allgatherv(row(c.rank, counts[c.rank], 0, np.int64), target, counts, offsets).run(TIMEOUT)
    whole = np.full(6, -1)
    for r in range(RANKS):
        whole[offsets[r]:offsets[r] + counts[r]] = row(r, counts[r])
    expect_equal(target, whole, "allgatherv")

    source = np.array([[10 * c.rank + r] * 2 for r in range(RANKS)])
    target = np.zeros_like(source)
    c.alltoall(source, target).run(TIMEOUT)
    expect_equal(target, [[10 * r + c.rank] * 2 for r in range(RANKS)], "alltoall")
    to = [r + 1 for r in range(RANKS)]  # to rank r, from each
    source = np.concatenate([np.full(to[r], 10 * c.rank + r) for r in range(RANKS)])
    target = np.zeros(RANKS * (c.rank + 1), np.int64)
    c.alltoallv(source, to, target, [c.rank + 1] * RANKS).run(TIMEOUT)
    expect_equal(target, np.repeat([10 * r + c.rank for r in range(RANKS)], c.rank + 1), "alltoallv")

    target = np.zeros((RANKS, 2)) if c.rank == 1 else None
    c.gather(row(c.rank, 2), target, 1).run(TIMEOUT)
    if c.rank == 1:
        expect_equal(target, [row(r, 2) for r in range(RANKS)], "gather")
    source = np.array([row(r, 2) for r in range(RANKS)]) if c.rank == 1 else None
    target = np.zeros(2)
    c.scatter(source, target, 1).run(TIMEOUT)
    expect_equal(target, row(c.rank, 2), "scatter")
    counts = [3, 1, 0, 2]
    target = np.zeros(6) if c.rank == 3 else None
    c.gatherv(row(c.rank, counts[c.rank]), target, counts if c.rank == 3 else None, root=3).run(TIMEOUT)
    whole = np.concatenate([row(r, counts[r]) for r in range(RANKS)])
    if c.rank == 3:
        expect_equal(target, whole, "gatherv")
    target = np.zeros(counts[c.rank])
    c.scatterv(whole if c.rank == 3 else None, target, counts if c.rank == 3 else None,
               root=3).run(TIMEOUT)
    expect_equal(target, row(c.rank, counts[c.rank]), "scatterv")


def calls(c):
    """start, test and wait; other buffers; what they keep alive."""
    barrier = c.barrier()
    for _ in range(3):
        barrier.start()
        while not barrier.test():
            pass
    expect(not barrier.in_flight and barrier.test(), "in flight")

    source, target = row(c.rank, 2), np.zeros(2)
    operation = c.allreduce(source, target)
    for call in range(5):
        source[:] = row(c.rank, 2, call)
        operation.start()
        operation.wait(TIMEOUT)
        expect_equal(target, sum(row(r, 2, call) for r in range(RANKS)), "a later call")
    others, three = (row(c.rank, 2, 9), np.zeros(2)), np.zeros(3)
    operation.start(*others)
    operation.wait()
    expect_equal(others[1], sum(row(r, 2, 9) for r in range(RANKS)), "other buffers")
    others[1][:] = row(c.rank, 2, 10)
    operation.start(others[1], others[1])
    operation.wait()
    expect_equal(others[1], sum(row(r, 2, 10) for r in range(RANKS)), "the target as source")
    for wrong, text in (((np.zeros(3), others[1]), "source has 3 elements of float64: the operation "
                         "was made for 2 of float64"),
                        ((others[0], np.zeros(2, np.int64)), "target has 2 elements of int64"),
                        ((others[0], None), "target is NoneType"),
                        ((three[:2], three[1:]), "source and target overlap"),
                        ((others[0][::-1], others[1]), "source is not contiguous")):
        refused(lambda: operation.start(*wrong), text, kind=ValueError)
    refused(lambda: operation.start(others[0]), "expected source and target", kind=TypeError)
    # The arrays live as long as the operation, and no longer.
    class Array(np.ndarray):  # plain arrays take weak references, too; this is for certain
        pass
    mine = row(c.rank, 2).view(Array)
    watched = weakref.ref(mine)
    operation = c.allreduce(mine, np.zeros(2))
    del mine
    gc.collect()
    expect(watched() is not None, "the operation lost its array")
    operation.run(TIMEOUT)
    del operation
    gc.collect()
    expect(watched() is None, "the array outlives the operation")

    # A timeout leaves the call in flight.
    c.synchronize()
    if c.rank == 0:
        barrier.start()
        error = refused(lambda: barrier.wait(0.05), "barrier #", "waiting for ranks", kind=TimeoutError)
        expect(isinstance(error, tutti.TimedOut) and error.code == "timed_out", error.code)
        refused(lambda: barrier.wait(float("nan")), "NaN", kind=ValueError)
        refused(barrier.start, "the operation is in flight", kind=RuntimeError)
        expect(barrier.in_flight and not barrier.test(), "no longer in flight")
        c.synchronize()
        barrier.wait(TIMEOUT)
    else:
        c.synchronize()
        barrier.run(TIMEOUT)

    # All ranks may give up such a call together.
    if c.rank != 1:
        barrier.start()
    if c.rank == 0:
        refused(lambda: barrier.wait(0.01), "waiting for ranks", kind=TimeoutError)
    c.cancel()
    expect(not barrier.in_flight, "in flight after cancel()")
    barrier.run(TIMEOUT)

    # Other threads run while one waits, and may not use its context.  The other ranks come when the
    # thread has seen that.
    c.synchronize()
    if c.rank == 0:
        said = []
        def other_thread():
            while not said:
                try:
                    barrier.test()
                    time.sleep(0.01)
                except RuntimeError as error:
                    said.append(str(error))
            os.write(signals[1], bytes(RANKS - 1))
        thread = threading.Thread(target=other_thread)
        barrier.start()
        thread.start()
        barrier.wait(TIMEOUT)
        thread.join()
        expect("one at a time" in said[0], said)
    else:
        expect(os.read(signals[0], 1) == b"\0", "no signal")
        barrier.run(TIMEOUT)

    # Signals are handled while one waits; the call goes on.
    c.synchronize()
    if c.rank == 0:
        def interrupt(*_):
            raise KeyboardInterrupt
        before = signal.signal(signal.SIGALRM, interrupt)
        barrier.start()
        refused(lambda: (signal.setitimer(signal.ITIMER_REAL, 0.05), barrier.wait(TIMEOUT)),
                kind=KeyboardInterrupt)
        signal.signal(signal.SIGALRM, before)
        c.synchronize()
        barrier.wait(TIMEOUT)
    else:
        c.synchronize()
        barrier.run(TIMEOUT)


def stale(c):
    """Rank 3 is late; with slack the others need not wait for it."""
    source, target = np.zeros(1), np.zeros(1)
    operation = c.allreduce_ssp(source, target, slack=2)
    c.synchronize()
    for call in range(3):
        if c.rank == 3 and call == 0:
            time.sleep(0.2)
        source[:] = call
        operation.run(TIMEOUT)
        expect(operation.staleness <= 2, operation.staleness)
        expect(call <= target[0] <= 4 * call, target)
    c.synchronize()


def exact(c):
    values = np.array([1e13, 1.5, -1e13, 3e-9])
    mine, whole = tutti.ExactSum(), tutti.ExactSum()
    mine.add(values[c.rank:c.rank + 1])
    mine.add(0.25)
    mine.add(np.ones(3, np.float32))
    mine.add_products(values[:2], np.zeros(2))
    operation = c.allreduce(mine, whole)
    operation.run(TIMEOUT)
    added = [0.25] * RANKS + [1.0] * 3 * RANKS + list(values)
    expect(whole.value() == math.fsum(added), whole.value())
    alone = tutti.ExactSum()
    for one in added:
        alone.add(float(one))
    expect(alone == whole and alone.array.tobytes() == whole.array.tobytes(), "other bits")
    expect(whole.value_as_float() == np.float32(14.5), "as float")
    alone.merge(whole)
    expect(alone.value() == 2 * math.fsum(added), alone.value())
    alone.clear()
    expect(alone.value() == 0 and alone != whole, "cleared")
    # Arrays of them.
    many = np.zeros(3, tutti.exact_sum_dtype)
    many[1] = mine.array[0]
    result = np.zeros_like(many)
    c.allreduce(many, result, "sum").run(TIMEOUT)
    expect(result[1] == whole.array[0] and result[0] == many[0], "an array of exact sums")
    refused(lambda: mine.add(np.zeros(2, np.int64)), "values has dtype int64", "convert it yourself")
    refused(lambda: mine.add(1), "values is int")
    refused(lambda: mine.add_products(values, values[:2]), "right has 2 elements: expected 4")
    refused(lambda: c.allreduce(many, result, "max"), "exact sums can be added only")


def operators(c):
    pairs = np.dtype([("key", "f8"), ("where", "i8")])
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
                                ctypes.c_void_p)

    @function
    def smaller(incoming, partial, count, context):
        view = lambda at: np.frombuffer((ctypes.c_char * (16 * count)).from_address(at), pairs)
        left, right = view(incoming), view(partial)
        wins = left["key"] <= right["key"]
        right[wins] = left[wins]

    mine = np.array([(10 - c.rank, c.rank), (c.rank, c.rank)], pairs)
    least = np.zeros(2, pairs)
    operation = c.allreduce(mine, least, tutti.user_operator(smaller, commutative=True,
                                                             idempotent=True, exact=True))
    del smaller
    gc.collect()
    operation.run(TIMEOUT)
    expect([tuple(one) for one in least] == [(10 - RANKS + 1, RANKS - 1), (0, 0)], least)
    refused(lambda: tutti.user_operator(len), "a function of C", kind=TypeError)
    refused(lambda: tutti.user_operator(None), "combine is no function")
    refused(lambda: c.allreduce(mine, least, max), "operator is builtin_function_or_method")


def objects(c):
    part = c.split(c.rank % 2 if c.rank < 3 else None, -c.rank)
    expect((part is None) == (c.rank == 3), "split")
    if part:
        expect(part.rank_count == (2 if c.rank != 1 else 1), part.rank_count)
        target = np.zeros(1)
        part.allreduce(np.full(1, float(c.rank)), target).run(TIMEOUT)
        expect(target[0] == (1 if c.rank == 1 else 2), target)
    expect(c.node == c.rank // 2 and c.node_count == 2 and c.node_remark == "", c.node)
    segment = c.allocate((2, 3), np.int32)
    expect(segment.shape == (2, 3) and not segment.any(), segment)
    view = segment[1]
    del segment
    view[:] = c.rank
    c.allreduce(view, view).run(TIMEOUT)
    expect_equal(view, [6, 6, 6], "in a segment")
    shared = c.allocate(2, scope="node")  # one memory for the ranks of a node
    operation = c.allreduce(row(c.rank, 2), shared)
    operation.run(TIMEOUT)
    expect_equal(shared, sum(row(r, 2) for r in range(RANKS)), operation.algorithm)
    expect(operation.algorithm.endswith("_shared_target"), operation.algorithm)
    refused(lambda: operation.start(row(c.rank, 2), np.zeros(2)), "works without copies", kind=ValueError)
    c.synchronize()
    # What wraps memory is an array, too.
    plain = bytearray(8 * RANKS)
    c.allgather(np.full(8, c.rank, np.uint8), plain).run(TIMEOUT)
    expect(plain == bytes(r for r in range(RANKS) for _ in range(8)), plain)
    refused(lambda: c.allocate(1, scope="host"), "scope \"host\"")
    refused(lambda: c.allocate(-1), "shape holds -1")
    refused(lambda: c.allocate(2, object), "no Python objects")


def mistakes(c):
    good, out = np.zeros(4), np.zeros(4)
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    odd = np.zeros(33, np.uint8)[1:].view(np.float64)
    grid = np.zeros((4, 4))
    cases = [
        ("source is not contiguous (shape (2,), strides (16,) bytes): pass numpy.ascontiguousarray("
         "source)", lambda: c.allreduce(good[::2], np.zeros(2))),
        ("target is not contiguous (shape (2,), strides (16,) bytes): pass a contiguous array",
         lambda: c.allreduce(np.zeros(2), good[::2])),
        ("source is not contiguous (shape (4, 4), strides (8, 32) bytes): it is in Fortran's order: "
         "pass its transpose, source.T", lambda: c.allreduce(grid.T, grid)),
        ("target is read-only, and would be written: pass an array of your own, such as "
         "target.copy()", lambda: c.allreduce(good, frozen)),
        ("source has dtype int16, which no operator by name combines: convert it to int32",
         lambda: c.allreduce(good.astype(np.int16), out.astype(np.int16))),
        ("source has dtype bool", lambda: c.allreduce(good.astype(bool), out.astype(bool), "lor")),
        ("source has dtype complex128", lambda: c.scan(good.astype(complex), out.astype(complex))),
        ("source holds Python objects (dtype object): convert it to numbers",
         lambda: c.allgather(good.astype(object), np.zeros(16))),
        ("source is not in the byte order of this machine (dtype >f8)",
         lambda: c.allreduce(good.astype(">f8"), out)),
        ("source is not aligned", lambda: c.allreduce(odd, out)),
        ("source is list, which has no memory of its own to work in: pass a NumPy array",
         lambda: c.allreduce([1.0] * 4, out)),
        ("target is NoneType", lambda: c.allreduce(good, None)),
        ("source has dtype float64, target int64: make them alike, such as "
         "source.astype(target.dtype)", lambda: c.allreduce(good, out.astype(np.int64))),
        ("target has 3 elements: expected 4, as many as source", lambda: c.allreduce(good, out[:3])),
        ("operator \"plus\": expected one of user, sum, prod", lambda: c.allreduce(good, out, "plus")),
        ("agreement \"same\": expected one of identical", lambda: c.allreduce(good, out, agreement="same")),
        ("algorithm \"rings\"", lambda: c.barrier(algorithm="rings")),
        ("per_round holds -1: expected integers from 0 on", lambda: c.barrier(per_round=[-1])),
        ("per_round holds 1.5", lambda: c.barrier(per_round=[1.5])),
        ("root 4: expected 0 .. 3", lambda: c.broadcast(good, 4)),
        ("root -1", lambda: c.gather(good, np.zeros(16), -1)),
        ("target has 4 elements: expected 16, those of source for each rank",
         lambda: c.allgather(good, out)),
        ("source has 3 elements: expected as many for each of the 4 ranks",
         lambda: c.alltoall(good[:3], out[:3])),
        ("counts has 2 entries: expected one for each of the 4 ranks",
         lambda: c.allgatherv(good, out, [4, 0])),
        ("target has 4 elements: the block of rank 3, 2 from element 3 on, does not fit",
         lambda: c.allgatherv(good[:1], out, [1, 1, 1, 2])),
        ("counts holds -1", lambda: c.allgatherv(good, out, [-1, 0, 0, 0])),
        ("source has 4 elements: expected 1, this rank's entry of counts",
         lambda: c.allgatherv(good, out, [1, 1, 1, 1])),
        ("source has 4 elements: expected 16, the sum of counts", lambda: c.reduce_scatter(good, out)),
        ("slack -1", lambda: c.allreduce_ssp(good, out, slack=-1)),
    ]
    for text, call in cases:
        error = refused(call, text)
        expect(isinstance(error, ValueError) and error.code == "invalid_argument", error)
    refused(lambda: c.allreduce(good, out, "band"), "operator", kind=tutti.Error)
    # What is refused here has a code, too.
    for text, call in (("values is int", lambda: tutti.ExactSum().add(3)),
                       ("combine is no function", lambda: tutti.user_operator(0))):
        expect(refused(call, text).code == "invalid_argument", text)
    expect(c.allocate(np.int64(3)).shape == (3,), "a shape of NumPy's integers")
    # A mistake on one rank is an error on all of them, and the communicator stays usable.
    for shape, dtype, text in ((1.5, "f8", "object is not iterable"), (4, "f9", "not understood"),
                               (4, "O", "a segment holds no Python objects")):
        refused(lambda: c.allocate(*((shape, dtype) if c.rank == 1 else (4, "f8"))), text,
                kind=tutti.Error)
    error = refused(lambda: c.allreduce(good[::2] if c.rank == 2 else good[:2], out[:2]),
                    "not contiguous" if c.rank == 2 else "rank 2", kind=tutti.Error)
    expect(error.code == ("invalid_argument" if c.rank == 2 else error.code), error)
    error = refused(lambda: c.allreduce(good[:c.rank + 1], out[:c.rank + 1]), kind=tutti.Error)
    expect(error.code == "mismatch", error.code)
    c.barrier().run(TIMEOUT)
    refused(lambda: tutti.Context(arena=5), "Context has no option \"arena\"; it has arena_bytes",
            kind=TypeError)
    refused(lambda: tutti.Context(notify="words"), "notify \"words\": expected one of immediate, flag")
    refused(lambda: tutti.Context(arena_bytes="much"), "arena_bytes: 'much'")
    refused(lambda: tutti.Context(device="no_such_device"), "no_such_device", kind=tutti.Error)


def body(exchange):
    context = tutti.Context(device="soft0", ranks_per_node=[2], arena_bytes=8 << 20,
                            setup_timeout=30.0)
    expect(context.device_name.startswith("soft0"), context.device_name)
    communicator = tutti.Communicator(context, exchange)
    expect((communicator.rank_count, communicator.failure) == (RANKS, None), communicator.failure)
    for part in (reductions, moves, calls, stale, exact, operators, objects, mistakes):
        part(communicator)
        gc.collect()
        communicator.barrier().run(TIMEOUT)


def give_up(exchange):
    communicator = tutti.Communicator(tutti.Context(device="soft0"), exchange)
    barrier = communicator.barrier()
    if communicator.rank == 0:
        communicator.abort()
    else:
        error = refused(lambda: barrier.run(TIMEOUT), "rank 0", kind=tutti.Aborted)
        expect(error.code == "aborted" and str(error) == communicator.failure, error.code)


def die(exchange):
    communicator = tutti.Communicator(tutti.Context(device="soft0"), exchange)
    barrier = communicator.barrier()
    barrier.run(TIMEOUT)
    if communicator.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    error = refused(lambda: barrier.run(TIMEOUT), "rank 1", kind=tutti.PeerFailed)
    expect(error.peer == 1 and communicator.failure, error.peer)
    return 5


def go_on(exchange):
    communicator = tutti.Communicator(tutti.Context(device="soft0", shrinkable=True), exchange)
    self = communicator.rank
    barrier = communicator.barrier()

    def run_until_failure():
        while True:
            barrier.run(TIMEOUT)

    if self == 0:
        barrier.run(TIMEOUT)
        os.kill(os.getpid(), signal.SIGKILL)
    refused(run_until_failure, "rank 0", kind=tutti.PeerFailed)
    survivors = communicator.shrink(TIMEOUT)
    del barrier, communicator
    gc.collect()
    expect((survivors.rank, survivors.rank_count) == (self - 1, 2), survivors.rank)
    target = np.zeros(1)
    survivors.allreduce(np.full(1, float(self)), target).run(TIMEOUT)
    expect(target[0] == 3, target)
    return 5


def main():
    tutti.run_local(RANKS, body)
    tutti.run_local(2, give_up)
    results = tutti.run_local(2, die, check=False)
    expect(results == [(5, 0), (0, signal.SIGKILL)], results)
    results = tutti.run_local(3, go_on, check=False)
    expect(results == [(0, signal.SIGKILL), (5, 0), (5, 0)], results)
    error = refused(lambda: tutti.run_local(2, lambda exchange: sys.exit(exchange is None or 3)),
                    "rank 0 ended with status 3, rank 1 ended with status 3", kind=tutti.Error)
    expect((error.code, error.peer) == ("system", None), (error.code, error.peer))
    refused(lambda: tutti.run_local(0, body), "rank_count", kind=tutti.InvalidArgument)
    expect(re.fullmatch(r"\d+\.\d+\.\d+", tutti.__version__), tutti.__version__)
    print("passed")


if __name__ == "__main__":
    main()
