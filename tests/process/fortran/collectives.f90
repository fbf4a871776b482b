! Promise: every collective from Fortran gives what Fortran computes, on 3 forked ranks of 2 nodes;
! what is wrong with an array is refused on every rank, with a text that names it.
module collectives_test
  use, intrinsic :: iso_fortran_env, only: int16, int32, int64, real32, real64, error_unit
  use tutti
  implicit none
  integer(int32), parameter :: ranks = 3
  integer(int64), parameter :: timeout = 20 * tutti_second
  type, bind(c) :: pair
    real(c_double) :: key
    integer(c_int64_t) :: place
  end type pair
  type(tutti_communicator) :: all
  integer :: me
contains
  subroutine expect(condition, what)
    logical, intent(in) :: condition
    character(*), intent(in) :: what
    if (condition) return
    write(error_unit, "(a, i0, 2a)") "rank ", me, ": wrong: ", what
    error stop 1
  end subroutine expect

  ! Twice, as it is persistent; then it is freed.
  subroutine run(operation, what)
    type(tutti_operation), intent(in) :: operation
    character(*), intent(in) :: what
    integer :: call
    do call = 1, 2
      call expect(tutti_start(operation) == TUTTI_OK, what // ": start")
      call expect(tutti_wait(operation, timeout) == TUTTI_OK, what // ": " // &
        tutti_describe_text(operation))
    end do
    call expect(tutti_operation_free(operation) == TUTTI_OK, what // ": free")
  end subroutine run

  pure integer function value(rank, index)
    integer, intent(in) :: rank, index
    value = 10 * rank + index
  end function value

  pure function row(rank, count)
    integer, intent(in) :: rank, count
    integer :: row(count), i
    row = [(value(rank, i), i = 1, count)]
  end function row

  subroutine reductions()
    integer(int32), target :: i4(4), i4_all(4)
    integer(int64), target :: i8(2, 2), i8_all(2, 2)
    real(real32), target :: r4(4), r4_all(4)
    real(real64), target :: r8(4), r8_all(4), alone
    real(real64), allocatable, target :: whole(:), block(:)
    type(tutti_operation) :: operation
    integer :: r
    i4 = row(me, 4)
    call tutti_allreduce(all, i4, i4_all, tutti_reduction(TUTTI_MAX), operation)
    call run(operation, "allreduce of int32")
    call expect(all_of(i4_all == row(ranks - 1, 4)), "allreduce of int32")
    i4 = merge(-1, 1, me == 0)  ! -1 is the greatest number without a sign
    call tutti_allreduce(all, i4, i4_all, tutti_reduction(TUTTI_MAX, TUTTI_UINT32), operation)
    call run(operation, "allreduce of integers without a sign")
    call expect(all_of(i4_all == -1), "allreduce of integers without a sign")
    i8 = reshape(row(me, 4), [2, 2])
    call tutti_allreduce(all, i8, i8_all, tutti_reduction(TUTTI_SUM), operation, &
      agreement=TUTTI_REPRODUCIBLE, algorithm=TUTTI_ALGORITHM_RECURSIVE_MULTIPLYING, &
      across=TUTTI_ACROSS_FLAT, per_round=[2_int32])
    call expect(tutti_algorithm_text(operation) == "recursive_multiplying", &
      tutti_algorithm_text(operation))
    call expect(index(tutti_explanation_text(operation), "recursive_multiplying") > 0, "explanation")
    call run(operation, "allreduce of int64")
    call expect(all_of([i8_all] == 3 * row(1, 4)), "allreduce of int64")
    r4 = real(row(me, 4), real32)
    call tutti_allreduce(all, r4, r4_all, tutti_reduction(TUTTI_SUM), operation)
    call run(operation, "allreduce of real32")
    call expect(all_of(nint(r4_all) == 3 * row(1, 4)), "allreduce of real32")
    alone = me + 1  ! in place, and a scalar; it is not persistent in value, so once
    call tutti_allreduce(all, alone, alone, tutti_reduction(TUTTI_SUM), operation)
    call expect(tutti_start(operation) == TUTTI_OK, "start")
    do while (tutti_test(operation) == TUTTI_IN_PROGRESS)
    end do
    call expect(nint(alone) == 6, "allreduce in place")
    call expect(tutti_operation_free(operation) == TUTTI_OK, "free")

    r8 = row(me, 4)
    call tutti_allreduce_ssp(all, r8, r8_all, tutti_reduction(TUTTI_SUM), 2, operation)
    call run(operation, "allreduce_ssp")
    call expect(all_of(nint(r8_all) == 3 * row(1, 4)), "allreduce_ssp")
    call expect(tutti_synchronize(all) == TUTTI_OK, "synchronize")

    r8_all = -1
    call tutti_reduce(all, r8, r8_all, tutti_reduction(TUTTI_SUM), operation, root=1)
    call run(operation, "reduce")
    if (me == 1) call expect(all_of(nint(r8_all) == 3 * row(1, 4)), "reduce")
    r8_all = -1
    call tutti_reduce(all, r8, r8_all, tutti_reduction(TUTTI_SUM), operation, &
      data_fraction=0.5_real64, rank_fraction=0.6_real64)
    call expect(tutti_covered_elements(operation) == 2, "elements that a reduce covers")
    call expect(tutti_covered_ranks(operation) == 2, "ranks that a reduce covers")
    call run(operation, "reduce of a part")
    if (me == 0) call expect(all_of(nint(r8_all(3:)) == -1) .and. nint(r8_all(1)) > -1, &
      "reduce of a part")
    call expect(tutti_synchronize(all) == TUTTI_OK, "synchronize")

    call tutti_allreduce(all, r8, r8_all, tutti_reduction(TUTTI_SUM), operation)
    if (me > 0) call expect(tutti_start(operation) == TUTTI_OK, "start of what is given up")
    if (me > 0) call expect(tutti_wait(operation, tutti_second / 1000) == TUTTI_TIMED_OUT, "late rank")
    call expect(tutti_cancel(all) == TUTTI_OK, "cancel")
    call run(operation, "allreduce after cancel")
    call expect(all_of(nint(r8_all) == 3 * row(1, 4)), "allreduce after cancel")

    call tutti_scan(all, r8, r8_all, tutti_reduction(TUTTI_SUM), operation)
    call run(operation, "scan")
    call expect(all_of(nint(r8_all) == sum_of([(row(r, 4), r = 0, me)])), "scan")
    call tutti_exscan(all, r8, r8_all(1:merge(0, 4, me == 0)), tutti_reduction(TUTTI_SUM), operation)
    call run(operation, "exscan")
    if (me > 0) call expect(all_of(nint(r8_all) == sum_of([(row(r, 4), r = 0, me - 1)])), "exscan")

    allocate(whole(6), block(me + 1))
    whole = row(me, 6)
    call tutti_reduce_scatter(all, whole, block, tutti_reduction(TUTTI_SUM), operation, &
      counts=[1_int64, 2_int64, 3_int64])
    call run(operation, "reduce_scatter")
    call expect(all_of(nint(block) == [(3 * value(1, me * (me + 1) / 2 + r), r = 1, me + 1)]), &
      "reduce_scatter")
    call tutti_reduce_scatter(all, whole, r8(1:2), tutti_reduction(TUTTI_MIN), operation)
    call run(operation, "reduce_scatter of equal blocks")
    call expect(all_of(nint(r8(1:2)) == [value(0, 2 * me + 1), value(0, 2 * me + 2)]), &
      "reduce_scatter of equal blocks")
  end subroutine reductions

  pure logical function all_of(these)
    logical, intent(in) :: these(:)
    all_of = count(these) == size(these)
  end function all_of

  ! Of rows of four, one after the other.
  pure function sum_of(rows)
    integer, intent(in) :: rows(:)
    integer :: sum_of(4)
    sum_of = sum(reshape(rows, [4, size(rows) / 4]), dim=2)
  end function sum_of

  subroutine moves()
    character(5), target :: word
    complex(real64), target :: part(10)
    integer, target :: mine(2), table(2, ranks), to_all(ranks), from_all(ranks)
    integer, target :: blocks(6), own(me + 1)
    integer(int64) :: counts(ranks), offsets(ranks)
    type(tutti_operation) :: operation
    integer :: r
    word = merge("tutti", "     ", me == 2)
    call tutti_broadcast(all, word, operation, root=2)
    call run(operation, "broadcast")
    call expect(word == "tutti", "broadcast")
    part = merge((1.0_real64, 2.0_real64), (0.0_real64, 0.0_real64), me == 0)
    call tutti_broadcast(all, part, operation, data_fraction=0.35_real64, tree=TUTTI_TREE_BINOMIAL)
    call run(operation, "a part of a broadcast")
    call expect(count(part%im > 1) == merge(10, 4, me == 0), "a part of a broadcast")

    mine = row(me, 2)
    call tutti_allgather(all, mine, table, operation)
    call run(operation, "allgather")
    call expect(all_of([table] == [(row(r, 2), r = 0, ranks - 1)]), "allgather")
    to_all = [(value(me, r), r = 0, ranks - 1)]
    call tutti_alltoall(all, to_all, from_all, operation)
    call run(operation, "alltoall")
    call expect(all_of(from_all == [(value(r, me), r = 0, ranks - 1)]), "alltoall")
    table = -1
    call tutti_gather(all, mine, table, operation, root=1)
    call run(operation, "gather")
    if (me == 1) call expect(all_of([table] == [(row(r, 2), r = 0, ranks - 1)]), "gather")
    mine = -1
    call tutti_scatter(all, table, mine, operation, root=1)
    call run(operation, "scatter")
    call expect(all_of(mine == row(me, 2)), "scatter")

    counts = [1, 2, 3]
    offsets = [5, 3, 0]
    own = row(me, me + 1)
    blocks = -1
    call tutti_allgatherv(all, own, blocks, counts, operation, offsets)
    call run(operation, "allgatherv")
    call expect(all_of(blocks == [row(2, 3), row(1, 2), row(0, 1)]), "allgatherv")
    blocks = -1
    call tutti_gatherv(all, own, blocks, counts, operation, root=2)
    call run(operation, "gatherv")
    if (me == 2) call expect(all_of(blocks == [row(0, 1), row(1, 2), row(2, 3)]), "gatherv")
    own = -1
    call tutti_scatterv(all, blocks, own, counts, operation, root=2)
    call run(operation, "scatterv")
    call expect(all_of(own == row(me, me + 1)), "scatterv")
    call tutti_alltoallv(all, blocks(1:ranks), [1_int64, 1_int64, 1_int64], from_all, &
      [1_int64, 1_int64, 1_int64], operation)
    call run(operation, "alltoallv")
    if (me == 0) call expect(from_all(3) == value(0, 1), "alltoallv")
    call tutti_barrier(all, operation, algorithm=TUTTI_ALGORITHM_DISSEMINATION)
    call run(operation, "barrier")
  end subroutine moves

  ! Keeps the smaller key, and where it was.
  subroutine smaller(incoming, partial, count, context) bind(c)
    type(c_ptr), value :: incoming, partial, context
    integer(c_size_t), value :: count
    type(pair), pointer :: left(:), right(:)
    integer(c_size_t) :: i
    call c_f_pointer(incoming, left, [count])
    call c_f_pointer(partial, right, [count])
    if (c_associated(context)) error stop 1
    do i = 1, count
      if (left(i)%key <= right(i)%key) right(i) = left(i)
    end do
  end subroutine smaller

  subroutine operators()
    type(pair), target :: mine(2), least(2)
    type(tutti_exact_sum), target :: part, whole
    type(tutti_exact_sum) :: alone
    real(real64), target :: source(2), result(2), other(2), another(2)
    type(tutti_operation) :: operation
    mine = [pair(real(10 - me, real64), me), pair(real(me, real64), me)]
    call tutti_allreduce(all, mine, least, tutti_user_operator(c_funloc(smaller), &
      commutative=.true., idempotent=.true., exact=.true.), operation)
    call run(operation, "an operator of the user's")
    call expect(all_of(least%place == [2, 0]), "an operator of the user's")

    call tutti_add(part, [1.0e10_real64, -1.0e10_real64, 3.0e-9_real64])
    call tutti_add(part, [0.5_real32])
    call tutti_add(part, 0.25_real64)
    call tutti_exact_sum_add_products(part, [2.0_real64], [4.0_real64], 1_c_size_t)
    call tutti_allreduce(all, part, whole, tutti_exact_addition(), operation)
    call run(operation, "exact sums")
    call tutti_exact_sum_merge(alone, part)
    call tutti_exact_sum_merge(alone, part)
    call tutti_exact_sum_merge(alone, part)
    call expect(all_of(whole%words == alone%words), "exact sums have other bits")
    call expect(abs(tutti_exact_sum_value(whole) - 26.250000009_real64) < 1e-14, "exact sum")
    call expect(abs(tutti_exact_sum_value_as_float(whole) - 26.25_real32) < 1e-5, "as float")

    source = me
    other = 2 * me
    call tutti_allreduce(all, source, result, tutti_reduction(TUTTI_SUM), operation)
    call expect(tutti_start_with(operation, other, another) == TUTTI_OK, "other buffers: start")
    call expect(tutti_wait(operation, timeout) == TUTTI_OK, "other buffers: wait")
    call expect(tutti_in_flight(operation) == 0, "still in flight")
    call expect(all_of(nint(another) == 6), "other buffers")
    call expect(tutti_operation_free(operation) == TUTTI_OK, "free")
  end subroutine operators

  subroutine refused(status, failure, text)
    integer(int32), intent(in) :: status
    type(tutti_failure), intent(in) :: failure
    character(*), intent(in) :: text
    call expect(status == TUTTI_INVALID_ARGUMENT .and. &
      index(tutti_failure_text(failure), text) > 0, "expected """ // text // """, got """ // &
      tutti_failure_text(failure) // """")
  end subroutine refused

  subroutine of_assumed_size(x, failure, status)
    real(real64), target, intent(in) :: x(*)
    real(real64), target :: y(4)
    type(tutti_failure), intent(out) :: failure
    integer(int32), intent(out) :: status
    type(tutti_operation) :: operation
    call tutti_allreduce(all, x, y, tutti_reduction(TUTTI_SUM), operation, status=status, &
      failure=failure)
  end subroutine of_assumed_size

  subroutine mistakes()
    real(real64), target :: x(4), y(4)
    real(real32), target :: few(4)
    integer(int16), target :: short(4)
    integer(int64), target :: long(4)
    type(tutti_operation) :: operation
    type(tutti_failure) :: failure
    integer(int32) :: status
    x = 0
    few = 0
    long = 0
    short = 0
    call tutti_allreduce(all, x(::2), y(1:2), tutti_reduction(TUTTI_SUM), operation, &
      status=status, failure=failure)
    call refused(status, failure, "source is not contiguous: pass an array that is")
    call expect(.not. c_associated(operation%handle), "there is an operation")
    call tutti_allreduce(all, x(1:2), y(::2), tutti_reduction(TUTTI_SUM), operation, &
      status=status, failure=failure)
    call refused(status, failure, "target is not contiguous")
    call of_assumed_size(x, failure, status)
    call refused(status, failure, "source is of assumed size: pass a section with bounds, source(1:n)")
    call tutti_allreduce(all, short, short, tutti_reduction(TUTTI_SUM), operation, status=status, &
      failure=failure)
    call refused(status, failure, "source has elements that no operator by name combines")
    call tutti_allreduce(all, x, long, tutti_reduction(TUTTI_SUM), operation, status=status, &
      failure=failure)
    call refused(status, failure, "source and target differ in type")
    call tutti_allreduce(all, x, y(1:3), tutti_reduction(TUTTI_SUM), operation, status=status, &
      failure=failure)
    call refused(status, failure, "source and target differ in size")
    call tutti_allgather(all, x, y, operation, status=status, failure=failure)
    call refused(status, failure, "target needs room for the elements")
    call tutti_alltoall(all, x, y, operation, status=status, failure=failure)
    call refused(status, failure, "source: expected as many elements for each rank")
    call tutti_allgatherv(all, x(1:1), y, [1_int64, 2_int64], operation, status=status, &
      failure=failure)
    call refused(status, failure, "counts of target: expected one entry for each rank")
    call tutti_allgatherv(all, x(1:1), y, [1_int64, 1_int64, 3_int64], operation, status=status, &
      failure=failure)
    call refused(status, failure, "target has fewer elements than its blocks")
    call tutti_gatherv(all, x(1:1), y, [1_int64, 1_int64, -1_int64], operation, status=status, &
      failure=failure)
    if (me == 0) call refused(status, failure, "counts and offsets of target: expected 0 or more")
    call expect(status < 0, "a mistake of the root alone")
    call tutti_reduce_scatter(all, x, y(1:1), tutti_reduction(TUTTI_SUM), operation, &
      status=status, failure=failure)
    call refused(status, failure, "source: expected the blocks of all ranks")
    ! Elements of other sizes would be read and written beyond the arrays.
    call tutti_allgatherv(all, few(1:1), x(1:3), [1_int64, 1_int64, 1_int64], operation, &
      status=status, failure=failure)
    call refused(status, failure, "source and target differ in type")
    call tutti_alltoallv(all, x(1:3), [1_int64, 1_int64, 1_int64], few(1:3), &
      [1_int64, 1_int64, 1_int64], operation, status=status, failure=failure)
    call refused(status, failure, "source and target differ in type")
    call tutti_gatherv(all, x(1:1), few(1:3), [1_int64, 1_int64, 1_int64], operation, &
      status=status, failure=failure)
    if (me == 0) call refused(status, failure, "source and target differ in type")
    call expect(status < 0, "a type of the root alone")
    call tutti_scatterv(all, few(1:3), x(1:1), [1_int64, 1_int64, 1_int64], operation, &
      status=status, failure=failure)
    if (me == 0) call refused(status, failure, "source and target differ in type")
    call expect(status < 0, "a type of the root alone")
    call tutti_reduce_scatter(all, x(1:3), few(1:1), tutti_reduction(TUTTI_SUM), operation, &
      status=status, failure=failure)
    call refused(status, failure, "source and target differ in type")
    call tutti_allgather(all, long(1:1), x(1:3), operation, status=status, failure=failure)
    call refused(status, failure, "source and target differ in type")
    call tutti_allreduce(all, x, y, tutti_reduction(TUTTI_SUM, TUTTI_FLOAT), operation, &
      status=status, failure=failure)
    call refused(status, failure, "source has elements of another type than the reduction")
    call tutti_allreduce(all, x, y, tutti_reduction(TUTTI_BIT_AND), operation, status=status, &
      failure=failure)
    call expect(status < 0, "a bitwise operator of real elements")
    ! A mistake on one rank is an error on all of them, and the communicator stays usable.
    call tutti_allreduce(all, x(1::merge(2, 1, me == 2)), y(1:merge(2, 4, me == 2)), &
      tutti_reduction(TUTTI_SUM), operation, status=status, failure=failure)
    call expect(status < 0 .and. index(tutti_failure_text(failure), &
      trim(merge("not contiguous", "rank 2        ", me == 2))) > 0, tutti_failure_text(failure))
    call tutti_barrier(all, operation)
    call run(operation, "barrier after mistakes")
  end subroutine mistakes

  function body(exchange, unused) bind(c) result(exit_status)
    type(tutti_exchange), value :: exchange
    type(c_ptr), value :: unused
    integer(c_int) :: exit_status
    integer(int32), target :: shape(1)
    type(tutti_context_options) :: options
    type(tutti_context) :: context
    type(tutti_communicator) :: part
    type(tutti_failure) :: failure
    integer(int32) :: status
    exit_status = merge(0, 1, .not. c_associated(unused))
    shape = 2
    options%ranks_per_node = tutti_counts(c_loc(shape), 1)
    options%arena_bytes = 8 * 1024 * 1024
    options%shrinkable = TUTTI_YES
    call tutti_make_context(context, device="no_such_device", status=status, failure=failure)
    call expect(status < 0 .and. index(tutti_failure_text(failure), "no_such_device") > 0, &
      tutti_failure_text(failure))
    call tutti_make_context(context, device="soft0", options=options)
    call expect(index(tutti_device_name_text(context), "soft0") == 1, tutti_device_name_text(context))
    call tutti_make_communicator(context, exchange, all)
    me = tutti_rank(all)
    call expect(tutti_rank_count(all) == ranks, "ranks")
    call expect(tutti_node_count(all) == 2, "nodes")
    call expect(tutti_node_remark_text(all) == "", tutti_node_remark_text(all))
    call reductions()
    call moves()
    call operators()
    call mistakes()
    call expect(tutti_communicator_split(all, mod(me, 2), 0_int64, part, failure) == TUTTI_OK, "split")
    call expect(tutti_rank_count(part) == merge(2, 1, mod(me, 2) == 0), "parts")
    call expect(tutti_communicator_free(part) == TUTTI_OK, "free")
    call expect(tutti_communicator_shrink(all, 20000000000_int64, part, failure) == TUTTI_OK, "shrink")
    call expect(tutti_rank_count(part) == ranks .and. tutti_rank(part) == me, "ranks that are still there")
    call expect(tutti_communicator_free(part) == TUTTI_OK, "free")
    call expect(tutti_communicator_free(all) == TUTTI_OK, "free")
    call expect(tutti_context_free(context) == TUTTI_OK, "free")
  end function body

  ! The sizes that C is told are those of Fortran.
  subroutine sizes()
    type(tutti_tcp_options) :: a
    type(tutti_exchange_functions) :: b
    type(tutti_context_options) :: c
    type(tutti_barrier_arguments) :: d
    type(tutti_allreduce_arguments) :: e
    type(tutti_allreduce_ssp_arguments) :: f
    type(tutti_broadcast_arguments) :: g
    type(tutti_reduce_arguments) :: h
    type(tutti_scan_arguments) :: i
    type(tutti_allgather_arguments) :: j
    type(tutti_allgatherv_arguments) :: k
    type(tutti_alltoallv_arguments) :: l
    type(tutti_gather_arguments) :: m
    type(tutti_gatherv_arguments) :: n
    type(tutti_reduce_scatter_arguments) :: o
    call expect(all_of([a%struct_size, b%struct_size, c%struct_size, d%struct_size, e%struct_size, &
      f%struct_size, g%struct_size, h%struct_size, i%struct_size, j%struct_size, k%struct_size, &
      l%struct_size, m%struct_size, n%struct_size, o%struct_size] == [c_sizeof(a), c_sizeof(b), &
      c_sizeof(c), c_sizeof(d), c_sizeof(e), c_sizeof(f), c_sizeof(g), c_sizeof(h), c_sizeof(i), &
      c_sizeof(j), c_sizeof(k), c_sizeof(l), c_sizeof(m), c_sizeof(n), c_sizeof(o)]), "sizes")
  end subroutine sizes

  ! What is missing is named.
  subroutine tcp()
    type(tutti_exchange) :: exchange
    type(tutti_failure) :: failure
    integer(int32) :: status
    call tutti_make_tcp_exchange(exchange, 0, 2, secret="x", status=status, failure=failure)
    call refused(status, failure, "rendezvous NULL")
    call tutti_make_tcp_exchange(exchange, status=status, failure=failure)
    call refused(status, failure, "TUTTI_RANK")
  end subroutine tcp
end module collectives_test

program collectives
  use collectives_test
  implicit none
  type(tutti_local_result) :: ended(ranks)
  type(tutti_failure) :: failure
  call sizes()
  call expect(tutti_run_local(ranks, c_funloc(body), c_null_ptr, ended, failure) == TUTTI_OK, &
    "run_local: " // tutti_failure_text(failure))
  call expect(all_of(ended%exit_status == 0 .and. ended%signal == 0), "a rank has failed")
  call expect(tutti_run_local(0, c_funloc(body), c_null_ptr, ended, failure) < 0, "no ranks")
  call tcp()
  print "(a)", "passed"
end program collectives
