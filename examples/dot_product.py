import numpy
import tutti


def body(exchange):
    context = tutti.Context()                           # device, registered memory
    communicator = tutti.Communicator(context, exchange)
    part = numpy.full(1000, 0.5)                        # this rank's part of a long vector
    mine, whole = numpy.zeros(1), numpy.zeros(1)
    dot = communicator.allreduce(mine, whole, "sum")    # planned and connected once
    for iteration in range(3):
        mine[0] = part @ part
        dot.start()                                     # never waits
        # ... compute here what does not need the result; call dot.test() now and then ...
        dot.wait(timeout=5)                             # TimedOut says what is missing
    print(f"rank {communicator.rank}: |x|^2 = {whole[0]:g}")


tutti.run_local(2, body)                                # forks two ranks of this machine
