! tutti for Fortran 2018: collectives of arrays of any type and rank.  Module tutti_c, which is part
! of it, has the C interface name by name: objects, start, test and wait, constants.
!
!     use tutti
!     real(real64), target :: mine(1), whole(1)
!     type(tutti_operation) :: dot
!     call tutti_allreduce(communicator, mine, whole, tutti_reduction(TUTTI_SUM), dot)
!     status = tutti_start(dot)
!     status = tutti_wait(dot, 5 * tutti_second)
!
! Buffers are variables with the attribute TARGET (or ASYNCHRONOUS) that outlive the operation, and
! contiguous: a copy that the compiler makes for the time of a call would be gone when the operation
! starts.  What can be seen to be wrong is refused on every rank.  It cannot be seen that gfortran
! copies a component of all elements of an array, such as particles%mass.
!
! Procedures that make an object have the optional results `status` and `failure`; without both, a
! failure is printed and ends the program with ERROR STOP.  Counts and offsets are in elements.
module tutti
  use, intrinsic :: iso_c_binding
  use tutti_arrays
  use tutti_c
  implicit none
  public
  private :: add_double, add_doubles, add_floats
  private :: array_known, as_text, bytes_of, conclude, describe, is_of_blocks, is_of_one_type
  private :: is_reduced, lay_out
  private :: list_of, ranks_of, reduction_of, refuse, root_of, set_wrong

  integer(c_int64_t), parameter :: tutti_second = 1000000000_c_int64_t  ! for timeouts

  ! The ranks of a communicator of MPI (in mpi_f08: communicator%MPI_VAL), and those of a launcher with
  ! a PMIx server.  Collective; timeout_ns: until all ranks have called it, 0: 30 s.  Who calls them
  ! links tutti::mpi or tutti::pmix, too.
  interface
    function tutti_mpi_exchange(communicator, timeout_ns, exchange, failure) &
        bind(c, name="tutti_mpi_exchange_fortran")
      import
      integer(c_int), value :: communicator
      integer(c_int64_t), value :: timeout_ns
      type(tutti_exchange), intent(out) :: exchange
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_mpi_exchange
    end function tutti_mpi_exchange
    function tutti_pmix_exchange(timeout_ns, exchange, failure) bind(c)
      import
      integer(c_int64_t), value :: timeout_ns
      type(tutti_exchange), intent(out) :: exchange
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_pmix_exchange
    end function tutti_pmix_exchange
  end interface

  ! Adds a number, or an array, to an exact sum.
  interface tutti_add
    module procedure add_double, add_doubles, add_floats
  end interface tutti_add

contains

  ! ---- Objects ----------------------------------------------------------------------------------

  ! Further options are components of `options`; texts go into the arguments.
  subroutine tutti_make_context(context, device, tuning_file, options, status, failure)
    type(tutti_context), intent(out) :: context
    character(*), intent(in), optional :: device, tuning_file
    type(tutti_context_options), intent(in), optional :: options
    integer(c_int32_t), intent(out), optional :: status
    type(tutti_failure), intent(out), optional :: failure
    type(tutti_context_options) :: all
    type(tutti_failure) :: why
    character(:, c_char), allocatable, target :: device_text, file_text
    integer(c_int32_t) :: result
    if (present(options)) all = options
    if (present(device)) then
      device_text = trim(device) // c_null_char
      all%device = c_loc(device_text)
    end if
    if (present(tuning_file)) then
      file_text = trim(tuning_file) // c_null_char
      all%tuning_file = c_loc(file_text)
    end if
    result = tutti_context_create(all, context, why)
    call conclude(result, why, status, failure)
  end subroutine tutti_make_context

  subroutine tutti_make_communicator(context, exchange, communicator, status, failure)
    type(tutti_context), intent(in) :: context
    type(tutti_exchange), intent(in) :: exchange
    type(tutti_communicator), intent(out) :: communicator
    integer(c_int32_t), intent(out), optional :: status
    type(tutti_failure), intent(out), optional :: failure
    type(tutti_failure) :: why
    integer(c_int32_t) :: result
    result = tutti_communicator_create(context, exchange, communicator, why)
    call conclude(result, why, status, failure)
  end subroutine tutti_make_communicator

  ! Without rank, rank_count, rendezvous and secret: as the environment says (TUTTI_RANK, ...).
  subroutine tutti_make_tcp_exchange(exchange, rank, rank_count, rendezvous, secret, timeout_ns, &
      status, failure)
    type(tutti_exchange), intent(out) :: exchange
    integer(c_int32_t), intent(in), optional :: rank, rank_count
    character(*), intent(in), optional :: rendezvous, secret
    integer(c_int64_t), intent(in), optional :: timeout_ns
    integer(c_int32_t), intent(out), optional :: status
    type(tutti_failure), intent(out), optional :: failure
    type(tutti_tcp_options) :: options
    type(tutti_failure) :: why
    character(:, c_char), allocatable, target :: rendezvous_text, secret_text
    integer(c_int32_t) :: result
    if (.not. (present(rank) .or. present(rank_count) .or. present(rendezvous) .or. &
        present(secret) .or. present(timeout_ns))) then
      result = tutti_tcp_exchange(exchange=exchange, failure=why)
    else
      ! What is missing is refused by the library, by its name.
      if (present(rank)) options%rank = rank
      if (present(rank_count)) options%rank_count = rank_count
      if (present(timeout_ns)) options%timeout_ns = timeout_ns
      if (present(rendezvous)) then
        rendezvous_text = trim(rendezvous) // c_null_char
        options%rendezvous = c_loc(rendezvous_text)
      end if
      if (present(secret)) then
        secret_text = secret // c_null_char
        options%secret = c_loc(secret_text)
      end if
      result = tutti_tcp_exchange(options, exchange, why)
    end if
    call conclude(result, why, status, failure)
  end subroutine tutti_make_tcp_exchange

  ! An operator of your own: a procedure with the attribute BIND(C), as tutti_combine_function in C,
  ! for elements of any type.
  function tutti_user_operator(combine, commutative, idempotent, exact, inverse, context) &
      result(reduction)
    type(c_funptr), value :: combine
    logical, intent(in), optional :: commutative, idempotent, exact
    type(c_funptr), intent(in), optional :: inverse
    type(c_ptr), intent(in), optional :: context
    type(tutti_reduction) :: reduction
    reduction%combine = combine
    if (present(commutative)) reduction%commutative = merge(1_c_int32_t, 0_c_int32_t, commutative)
    if (present(idempotent)) reduction%idempotent = merge(1_c_int32_t, 0_c_int32_t, idempotent)
    if (present(exact)) reduction%exact = merge(1_c_int32_t, 0_c_int32_t, exact)
    if (present(inverse)) reduction%inverse = inverse
    if (present(context)) reduction%context = context
  end function tutti_user_operator

  ! As tutti_start_on(): sizes are not checked.  A broadcast has its buffer as source and target.
  function tutti_start_with(operation, source, target) result(status)
    type(tutti_operation), intent(in) :: operation
    type(*), dimension(..), target, intent(in), optional :: source
    type(*), dimension(..), target, intent(inout), optional :: target
    integer(c_int32_t) :: status
    type(array_known) :: from, to
    character(:), allocatable :: wrong
    call describe(source, "source", from, wrong)
    call describe(target, "target", to, wrong)
    status = TUTTI_INVALID_ARGUMENT
    if (.not. allocated(wrong)) status = tutti_start_on(operation, from%data, to%data)
  end function tutti_start_with

  ! ---- Exact sums -------------------------------------------------------------------------------

  subroutine add_double(sum, value)
    type(tutti_exact_sum), intent(inout) :: sum
    real(c_double), intent(in) :: value
    call tutti_exact_sum_add(sum, [value], 1_c_size_t)
  end subroutine add_double

  subroutine add_doubles(sum, values)
    type(tutti_exact_sum), intent(inout) :: sum
    real(c_double), intent(in), contiguous :: values(:)
    call tutti_exact_sum_add(sum, values, size(values, kind=c_size_t))
  end subroutine add_doubles

  subroutine add_floats(sum, values)
    type(tutti_exact_sum), intent(inout) :: sum
    real(c_float), intent(in), contiguous :: values(:)
    call tutti_exact_sum_add_floats(sum, values, size(values, kind=c_size_t))
  end subroutine add_floats

  ! ---- Texts ------------------------------------------------------------------------------------

  function tutti_failure_text(failure) result(text)
    type(tutti_failure), intent(in) :: failure
    character(:), allocatable :: text
    text = as_text(failure%text)
  end function tutti_failure_text

  function tutti_describe_text(operation) result(text)
    type(tutti_operation), intent(in) :: operation
    character(:), allocatable :: text
    character(kind=c_char), allocatable :: room(:)
    allocate(room(tutti_describe(operation, bytes=0_c_size_t) + 1))
    if (tutti_describe(operation, room, size(room, kind=c_size_t)) >= 0) text = as_text(room)
  end function tutti_describe_text

  function tutti_algorithm_text(operation) result(text)
    type(tutti_operation), intent(in) :: operation
    character(:), allocatable :: text
    character(kind=c_char), allocatable :: room(:)
    allocate(room(tutti_algorithm(operation, bytes=0_c_size_t) + 1))
    if (tutti_algorithm(operation, room, size(room, kind=c_size_t)) >= 0) text = as_text(room)
  end function tutti_algorithm_text

  function tutti_explanation_text(operation) result(text)
    type(tutti_operation), intent(in) :: operation
    character(:), allocatable :: text
    character(kind=c_char), allocatable :: room(:)
    allocate(room(tutti_explanation(operation, bytes=0_c_size_t) + 1))
    if (tutti_explanation(operation, room, size(room, kind=c_size_t)) >= 0) text = as_text(room)
  end function tutti_explanation_text

  function tutti_device_name_text(context) result(text)
    type(tutti_context), intent(in) :: context
    character(:), allocatable :: text
    character(kind=c_char), allocatable :: room(:)
    allocate(room(tutti_device_name(context, bytes=0_c_size_t) + 1))
    if (tutti_device_name(context, room, size(room, kind=c_size_t)) >= 0) text = as_text(room)
  end function tutti_device_name_text

  function tutti_device_choice_text(context) result(text)
    type(tutti_context), intent(in) :: context
    character(:), allocatable :: text
    character(kind=c_char), allocatable :: room(:)
    allocate(room(tutti_device_choice(context, bytes=0_c_size_t) + 1))
    if (tutti_device_choice(context, room, size(room, kind=c_size_t)) >= 0) text = as_text(room)
  end function tutti_device_choice_text

  function tutti_node_remark_text(communicator) result(text)
    type(tutti_communicator), intent(in) :: communicator
    character(:), allocatable :: text
    character(kind=c_char), allocatable :: room(:)
    allocate(room(tutti_node_remark(communicator, bytes=0_c_size_t) + 1))
    if (tutti_node_remark(communicator, room, size(room, kind=c_size_t)) >= 0) text = as_text(room)
  end function tutti_node_remark_text

  function tutti_report_text(communicator, as_json) result(text)
    type(tutti_communicator), intent(in) :: communicator
    logical, intent(in), optional :: as_json
    character(:), allocatable :: text
    character(kind=c_char), allocatable :: room(:)
    integer(c_int32_t) :: json
    json = 0
    if (present(as_json)) json = merge(1_c_int32_t, 0_c_int32_t, as_json)
    allocate(room(tutti_report(communicator, json, bytes=0_c_size_t) + 1))
    if (tutti_report(communicator, json, room, size(room, kind=c_size_t)) >= 0) text = as_text(room)
  end function tutti_report_text

  ! ---- Collectives ------------------------------------------------------------------------------
  ! Arguments that may be left out have the names and the defaults of C.

  subroutine tutti_barrier(communicator, operation, per_round, algorithm, across, status, failure)
    type(tutti_communicator), intent(in) :: communicator
    type(tutti_operation), intent(out) :: operation
    integer(c_int32_t), intent(in), optional :: algorithm, across
    integer(c_int32_t), intent(in), optional, target, contiguous :: per_round(:)
    integer(c_int32_t), intent(out), optional :: status
    type(tutti_failure), intent(out), optional :: failure
    type(tutti_barrier_arguments) :: arguments
    type(tutti_failure) :: why
    integer(c_int32_t) :: result
    arguments%per_round = list_of(per_round)
    if (present(algorithm)) arguments%algorithm = algorithm
    if (present(across)) arguments%across = across
    result = tutti_barrier_init(communicator, arguments, operation, why)
    call conclude(result, why, status, failure)
  end subroutine tutti_barrier

  subroutine tutti_allreduce(communicator, source, target, reduction, operation, agreement, &
      per_round, algorithm, across, status, failure)
    type(tutti_communicator), intent(in) :: communicator
    type(*), dimension(..), target, intent(in) :: source
    type(*), dimension(..), target, intent(inout) :: target
    type(tutti_reduction), intent(in) :: reduction
    type(tutti_operation), intent(out) :: operation
    integer(c_int32_t), intent(in), optional :: agreement, algorithm, across
    integer(c_int32_t), intent(in), optional, target, contiguous :: per_round(:)
    integer(c_int32_t), intent(out), optional :: status
    type(tutti_failure), intent(out), optional :: failure
    type(tutti_allreduce_arguments) :: arguments
    type(array_known) :: from, to
    character(:), allocatable :: wrong
    type(tutti_failure) :: why
    integer(c_int32_t) :: result
    call describe(source, "source", from, wrong)
    call describe(target, "target", to, wrong)
    call is_reduced(from, to, wrong)
    arguments%source = from%data
    arguments%target = to%data
    arguments%reduction = reduction_of(reduction, from, wrong)
    arguments%element_count = merge(-1_c_int64_t, from%element_count, allocated(wrong))
    if (present(agreement)) arguments%agreement = agreement
    arguments%per_round = list_of(per_round)
    if (present(algorithm)) arguments%algorithm = algorithm
    if (present(across)) arguments%across = across
    result = tutti_allreduce_init(communicator, arguments, operation, why)
    call refuse(wrong, result, why)
    call conclude(result, why, status, failure)
  end subroutine tutti_allreduce

  subroutine tutti_allreduce_ssp(communicator, source, target, reduction, slack, operation, &
      status, failure)
    type(tutti_communicator), intent(in) :: communicator
    type(*), dimension(..), target, intent(in) :: source
    type(*), dimension(..), target, intent(inout) :: target
    type(tutti_reduction), intent(in) :: reduction
    integer(c_int32_t), intent(in) :: slack
    type(tutti_operation), intent(out) :: operation
    integer(c_int32_t), intent(out), optional :: status
    type(tutti_failure), intent(out), optional :: failure
    type(tutti_allreduce_ssp_arguments) :: arguments
    type(array_known) :: from, to
    character(:), allocatable :: wrong
    type(tutti_failure) :: why
    integer(c_int32_t) :: result
    call describe(source, "source", from, wrong)
    call describe(target, "target", to, wrong)
    call is_reduced(from, to, wrong)
    arguments%source = from%data
    arguments%target = to%data
    arguments%reduction = reduction_of(reduction, from, wrong)
    arguments%element_count = merge(-1_c_int64_t, from%element_count, allocated(wrong))
    arguments%slack = slack
    result = tutti_allreduce_ssp_init(communicator, arguments, operation, why)
    call refuse(wrong, result, why)
    call conclude(result, why, status, failure)
  end subroutine tutti_allreduce_ssp

  subroutine tutti_scan(communicator, source, target, reduction, operation, status, failure)
    type(tutti_communicator), intent(in) :: communicator
    type(*), dimension(..), target, intent(in) :: source
    type(*), dimension(..), target, intent(inout) :: target
    type(tutti_reduction), intent(in) :: reduction
    type(tutti_operation), intent(out) :: operation
    integer(c_int32_t), intent(out), optional :: status
    type(tutti_failure), intent(out), optional :: failure
    type(tutti_scan_arguments) :: arguments
    type(array_known) :: from, to
    character(:), allocatable :: wrong
    type(tutti_failure) :: why
    integer(c_int32_t) :: result
    call describe(source, "source", from, wrong)
    call describe(target, "target", to, wrong)
    call is_reduced(from, to, wrong)
    arguments%source = from%data
    arguments%target = to%data
    arguments%reduction = reduction_of(reduction, from, wrong)
    arguments%element_count = merge(-1_c_int64_t, from%element_count, allocated(wrong))
    result = tutti_scan_init(communicator, arguments, operation, why)
    call refuse(wrong, result, why)
    call conclude(result, why, status, failure)
  end subroutine tutti_scan

  ! Rank 0 needs no target: an array of any size, even none, such as whole(1:0).
  subroutine tutti_exscan(communicator, source, target, reduction, operation, status, failure)
    type(tutti_communicator), intent(in) :: communicator
    type(*), dimension(..), target, intent(in) :: source
    type(*), dimension(..), target, intent(inout) :: target
    type(tutti_reduction), intent(in) :: reduction
    type(tutti_operation), intent(out) :: operation
    integer(c_int32_t), intent(out), optional :: status
    type(tutti_failure), intent(out), optional :: failure
    type(tutti_scan_arguments) :: arguments
    type(array_known) :: from, to
    character(:), allocatable :: wrong
    type(tutti_failure) :: why
    integer(c_int32_t) :: result
    call describe(source, "source", from, wrong)
    call describe(target, "target", to, wrong)
    if (tutti_rank(communicator) /= 0) call is_reduced(from, to, wrong)
    arguments%source = from%data
    arguments%target = to%data
    arguments%reduction = reduction_of(reduction, from, wrong)
    arguments%element_count = merge(-1_c_int64_t, from%element_count, allocated(wrong))
    result = tutti_exscan_init(communicator, arguments, operation, why)
    call refuse(wrong, result, why)
    call conclude(result, why, status, failure)
  end subroutine tutti_exscan

  ! The root alone needs a target.
  subroutine tutti_reduce(communicator, source, target, reduction, operation, root, agreement, &
      data_fraction, rank_fraction, tree, status, failure)
    type(tutti_communicator), intent(in) :: communicator
    type(*), dimension(..), target, intent(in) :: source
    type(*), dimension(..), target, intent(inout) :: target
    type(tutti_reduction), intent(in) :: reduction
    type(tutti_operation), intent(out) :: operation
    integer(c_int32_t), intent(in), optional :: root, agreement, tree
    real(c_double), intent(in), optional :: data_fraction, rank_fraction
    integer(c_int32_t), intent(out), optional :: status
    type(tutti_failure), intent(out), optional :: failure
    type(tutti_reduce_arguments) :: arguments
    type(array_known) :: from, to
    character(:), allocatable :: wrong
    type(tutti_failure) :: why
    integer(c_int32_t) :: result
    call describe(source, "source", from, wrong)
    call describe(target, "target", to, wrong)
    if (tutti_rank(communicator) == root_of(root)) call is_reduced(from, to, wrong)
    arguments%source = from%data
    arguments%target = to%data
    arguments%reduction = reduction_of(reduction, from, wrong)
    arguments%element_count = merge(-1_c_int64_t, from%element_count, allocated(wrong))
    if (present(root)) arguments%root = root
    if (present(agreement)) arguments%agreement = agreement
    if (present(data_fraction)) arguments%data_fraction = data_fraction
    if (present(rank_fraction)) arguments%rank_fraction = rank_fraction
    if (present(tree)) arguments%tree = tree
    result = tutti_reduce_init(communicator, arguments, operation, why)
    call refuse(wrong, result, why)
    call conclude(result, why, status, failure)
  end subroutine tutti_reduce

  subroutine tutti_broadcast(communicator, buffer, operation, root, data_fraction, tree, status, &
      failure)
    type(tutti_communicator), intent(in) :: communicator
    type(*), dimension(..), target, intent(inout) :: buffer
    type(tutti_operation), intent(out) :: operation
    integer(c_int32_t), intent(in), optional :: root, tree
    real(c_double), intent(in), optional :: data_fraction
    integer(c_int32_t), intent(out), optional :: status
    type(tutti_failure), intent(out), optional :: failure
    type(tutti_broadcast_arguments) :: arguments
    type(array_known) :: all
    character(:), allocatable :: wrong
    type(tutti_failure) :: why
    integer(c_int32_t) :: result
    call describe(buffer, "buffer", all, wrong)
    arguments%buffer = all%data
    arguments%bytes = bytes_of(all, wrong)
    arguments%element_bytes = max(all%element_bytes, 1_c_int64_t)
    if (present(root)) arguments%root = root
    if (present(data_fraction)) arguments%data_fraction = data_fraction
    if (present(tree)) arguments%tree = tree
    result = tutti_broadcast_init(communicator, arguments, operation, why)
    call refuse(wrong, result, why)
    call conclude(result, why, status, failure)
  end subroutine tutti_broadcast

  subroutine tutti_allgather(communicator, source, target, operation, algorithm, status, failure)
    type(tutti_communicator), intent(in) :: communicator
    type(*), dimension(..), target, intent(in) :: source
    type(*), dimension(..), target, intent(inout) :: target
    type(tutti_operation), intent(out) :: operation
    integer(c_int32_t), intent(in), optional :: algorithm
    integer(c_int32_t), intent(out), optional :: status
    type(tutti_failure), intent(out), optional :: failure
    type(tutti_allgather_arguments) :: arguments
    type(array_known) :: from, to
    character(:), allocatable :: wrong
    type(tutti_failure) :: why
    integer(c_int32_t) :: result
    call describe(source, "source", from, wrong)
    call describe(target, "target", to, wrong)
    arguments%source = from%data
    arguments%target = to%data
    call is_of_blocks(to, "target", from, ranks_of(communicator), wrong)
    arguments%bytes = bytes_of(from, wrong)
    if (present(algorithm)) arguments%algorithm = algorithm
    result = tutti_allgather_init(communicator, arguments, operation, why)
    call refuse(wrong, result, why)
    call conclude(result, why, status, failure)
  end subroutine tutti_allgather

  subroutine tutti_alltoall(communicator, source, target, operation, status, failure)
    type(tutti_communicator), intent(in) :: communicator
    type(*), dimension(..), target, intent(in) :: source
    type(*), dimension(..), target, intent(inout) :: target
    type(tutti_operation), intent(out) :: operation
    integer(c_int32_t), intent(out), optional :: status
    type(tutti_failure), intent(out), optional :: failure
    type(tutti_allgather_arguments) :: arguments
    type(array_known) :: from, to
    character(:), allocatable :: wrong
    type(tutti_failure) :: why
    integer(c_int32_t) :: result
    call describe(source, "source", from, wrong)
    call describe(target, "target", to, wrong)
    arguments%source = from%data
    arguments%target = to%data
    if (mod(from%element_count, ranks_of(communicator)) /= 0) &
      call set_wrong(wrong, "source: expected as many elements for each rank")
    call is_reduced(from, to, wrong)
    arguments%bytes = bytes_of(from, wrong)
    if (.not. allocated(wrong)) arguments%bytes = arguments%bytes / tutti_rank_count(communicator)
    result = tutti_alltoall_init(communicator, arguments, operation, why)
    call refuse(wrong, result, why)
    call conclude(result, why, status, failure)
  end subroutine tutti_alltoall

  ! The root alone needs a target.
  subroutine tutti_gather(communicator, source, target, operation, root, status, failure)
    type(tutti_communicator), intent(in) :: communicator
    type(*), dimension(..), target, intent(in) :: source
    type(*), dimension(..), target, intent(inout) :: target
    type(tutti_operation), intent(out) :: operation
    integer(c_int32_t), intent(in), optional :: root
    integer(c_int32_t), intent(out), optional :: status
    type(tutti_failure), intent(out), optional :: failure
    type(tutti_gather_arguments) :: arguments
    type(array_known) :: from, to
    character(:), allocatable :: wrong
    type(tutti_failure) :: why
    integer(c_int32_t) :: result
    call describe(source, "source", from, wrong)
    call describe(target, "target", to, wrong)
    arguments%source = from%data
    arguments%target = to%data
    if (tutti_rank(communicator) == root_of(root)) &
      call is_of_blocks(to, "target", from, ranks_of(communicator), wrong)
    arguments%bytes = bytes_of(from, wrong)
    if (present(root)) arguments%root = root
    result = tutti_gather_init(communicator, arguments, operation, why)
    call refuse(wrong, result, why)
    call conclude(result, why, status, failure)
  end subroutine tutti_gather

  ! The root alone needs a source.
  subroutine tutti_scatter(communicator, source, target, operation, root, status, failure)
    type(tutti_communicator), intent(in) :: communicator
    type(*), dimension(..), target, intent(in) :: source
    type(*), dimension(..), target, intent(inout) :: target
    type(tutti_operation), intent(out) :: operation
    integer(c_int32_t), intent(in), optional :: root
    integer(c_int32_t), intent(out), optional :: status
    type(tutti_failure), intent(out), optional :: failure
    type(tutti_gather_arguments) :: arguments
    type(array_known) :: from, to
    character(:), allocatable :: wrong
    type(tutti_failure) :: why
    integer(c_int32_t) :: result
    call describe(source, "source", from, wrong)
    call describe(target, "target", to, wrong)
    arguments%source = from%data
    arguments%target = to%data
    if (tutti_rank(communicator) == root_of(root)) &
      call is_of_blocks(from, "source", to, ranks_of(communicator), wrong)
    arguments%bytes = bytes_of(to, wrong)
    if (present(root)) arguments%root = root
    result = tutti_scatter_init(communicator, arguments, operation, why)
    call refuse(wrong, result, why)
    call conclude(result, why, status, failure)
  end subroutine tutti_scatter

  subroutine tutti_allgatherv(communicator, source, target, counts, operation, offsets, &
      algorithm, status, failure)
    type(tutti_communicator), intent(in) :: communicator
    type(*), dimension(..), target, intent(in) :: source
    type(*), dimension(..), target, intent(inout) :: target
    integer(c_int64_t), intent(in) :: counts(:)
    type(tutti_operation), intent(out) :: operation
    integer(c_int32_t), intent(in), optional :: algorithm
    integer(c_int64_t), intent(in), optional :: offsets(:)
    integer(c_int32_t), intent(out), optional :: status
    type(tutti_failure), intent(out), optional :: failure
    type(tutti_allgatherv_arguments) :: arguments
    type(array_known) :: from, to
    character(:), allocatable :: wrong
    type(tutti_failure) :: why
    integer(c_int32_t) :: result
    integer(c_int64_t), allocatable, target :: bytes(:), begins(:)
    call describe(source, "source", from, wrong)
    call describe(target, "target", to, wrong)
    call is_of_one_type(from, to, wrong)
    arguments%source = from%data
    arguments%target = to%data
    call lay_out(to, "target", counts, offsets, ranks_of(communicator), bytes, begins, wrong)
    if (.not. allocated(wrong)) then
      if (from%element_count /= counts(tutti_rank(communicator) + 1)) &
        call set_wrong(wrong, "source: expected this rank's entry of counts")
    end if
    if (allocated(wrong)) bytes(:) = -1
    arguments%blocks%bytes = c_loc(bytes)
    arguments%blocks%offsets = c_loc(begins)
    if (present(algorithm)) arguments%algorithm = algorithm
    result = tutti_allgatherv_init(communicator, arguments, operation, why)
    call refuse(wrong, result, why)
    call conclude(result, why, status, failure)
  end subroutine tutti_allgatherv

  subroutine tutti_alltoallv(communicator, source, source_counts, target, target_counts, &
      operation, source_offsets, target_offsets, status, failure)
    type(tutti_communicator), intent(in) :: communicator
    type(*), dimension(..), target, intent(in) :: source
    type(*), dimension(..), target, intent(inout) :: target
    integer(c_int64_t), intent(in) :: source_counts(:), target_counts(:)
    type(tutti_operation), intent(out) :: operation
    integer(c_int64_t), intent(in), optional :: source_offsets(:), target_offsets(:)
    integer(c_int32_t), intent(out), optional :: status
    type(tutti_failure), intent(out), optional :: failure
    type(tutti_alltoallv_arguments) :: arguments
    type(array_known) :: from, to
    character(:), allocatable :: wrong
    type(tutti_failure) :: why
    integer(c_int32_t) :: result
    integer(c_int64_t), allocatable, target :: bytes(:), begins(:), to_bytes(:), to_begins(:)
    call describe(source, "source", from, wrong)
    call describe(target, "target", to, wrong)
    call is_of_one_type(from, to, wrong)
    arguments%source = from%data
    arguments%target = to%data
    call lay_out(from, "source", source_counts, source_offsets, ranks_of(communicator), bytes, &
      begins, wrong)
    call lay_out(to, "target", target_counts, target_offsets, ranks_of(communicator), to_bytes, &
      to_begins, wrong)
    if (allocated(wrong)) bytes(:) = -1
    arguments%source_blocks = tutti_block_layout(c_loc(bytes), c_loc(begins))
    arguments%target_blocks = tutti_block_layout(c_loc(to_bytes), c_loc(to_begins))
    result = tutti_alltoallv_init(communicator, arguments, operation, why)
    call refuse(wrong, result, why)
    call conclude(result, why, status, failure)
  end subroutine tutti_alltoallv

  ! The root alone needs a target, counts and offsets.
  subroutine tutti_gatherv(communicator, source, target, counts, operation, offsets, root, &
      status, failure)
    type(tutti_communicator), intent(in) :: communicator
    type(*), dimension(..), target, intent(in) :: source
    type(*), dimension(..), target, intent(inout) :: target
    integer(c_int64_t), intent(in) :: counts(:)
    type(tutti_operation), intent(out) :: operation
    integer(c_int32_t), intent(in), optional :: root
    integer(c_int64_t), intent(in), optional :: offsets(:)
    integer(c_int32_t), intent(out), optional :: status
    type(tutti_failure), intent(out), optional :: failure
    type(tutti_gatherv_arguments) :: arguments
    type(array_known) :: from, to
    character(:), allocatable :: wrong
    type(tutti_failure) :: why
    integer(c_int32_t) :: result
    integer(c_int64_t), allocatable, target :: bytes(:), begins(:)
    call describe(source, "source", from, wrong)
    call describe(target, "target", to, wrong)
    if (tutti_rank(communicator) == root_of(root)) call is_of_one_type(from, to, wrong)
    arguments%source = from%data
    arguments%target = to%data
    call lay_out(to, "target", counts, offsets, ranks_of(communicator), bytes, begins, wrong, &
      tutti_rank(communicator) == root_of(root))
    arguments%bytes = bytes_of(from, wrong)
    arguments%blocks = tutti_block_layout(c_loc(bytes), c_loc(begins))
    if (present(root)) arguments%root = root
    result = tutti_gatherv_init(communicator, arguments, operation, why)
    call refuse(wrong, result, why)
    call conclude(result, why, status, failure)
  end subroutine tutti_gatherv

  ! The root alone needs a source, counts and offsets.
  subroutine tutti_scatterv(communicator, source, target, counts, operation, offsets, root, &
      status, failure)
    type(tutti_communicator), intent(in) :: communicator
    type(*), dimension(..), target, intent(in) :: source
    type(*), dimension(..), target, intent(inout) :: target
    integer(c_int64_t), intent(in) :: counts(:)
    type(tutti_operation), intent(out) :: operation
    integer(c_int32_t), intent(in), optional :: root
    integer(c_int64_t), intent(in), optional :: offsets(:)
    integer(c_int32_t), intent(out), optional :: status
    type(tutti_failure), intent(out), optional :: failure
    type(tutti_gatherv_arguments) :: arguments
    type(array_known) :: from, to
    character(:), allocatable :: wrong
    type(tutti_failure) :: why
    integer(c_int32_t) :: result
    integer(c_int64_t), allocatable, target :: bytes(:), begins(:)
    call describe(source, "source", from, wrong)
    call describe(target, "target", to, wrong)
    if (tutti_rank(communicator) == root_of(root)) call is_of_one_type(from, to, wrong)
    arguments%source = from%data
    arguments%target = to%data
    call lay_out(from, "source", counts, offsets, ranks_of(communicator), bytes, begins, wrong, &
      tutti_rank(communicator) == root_of(root))
    arguments%bytes = bytes_of(to, wrong)
    arguments%blocks = tutti_block_layout(c_loc(bytes), c_loc(begins))
    if (present(root)) arguments%root = root
    result = tutti_scatterv_init(communicator, arguments, operation, why)
    call refuse(wrong, result, why)
    call conclude(result, why, status, failure)
  end subroutine tutti_scatterv

  ! Without counts, every block is as long as the target.
  subroutine tutti_reduce_scatter(communicator, source, target, reduction, operation, counts, &
      agreement, algorithm, status, failure)
    type(tutti_communicator), intent(in) :: communicator
    type(*), dimension(..), target, intent(in) :: source
    type(*), dimension(..), target, intent(inout) :: target
    type(tutti_reduction), intent(in) :: reduction
    type(tutti_operation), intent(out) :: operation
    integer(c_int32_t), intent(in), optional :: agreement, algorithm
    integer(c_int64_t), intent(in), optional :: counts(:)
    integer(c_int32_t), intent(out), optional :: status
    type(tutti_failure), intent(out), optional :: failure
    type(tutti_reduce_scatter_arguments) :: arguments
    type(array_known) :: from, to
    character(:), allocatable :: wrong
    type(tutti_failure) :: why
    integer(c_int32_t) :: result
    integer(c_int64_t), allocatable, target :: each(:)
    call describe(source, "source", from, wrong)
    call describe(target, "target", to, wrong)
    call is_of_one_type(from, to, wrong)
    allocate(each(tutti_rank_count(communicator)), source=to%element_count)
    if (present(counts)) then
      if (size(counts) == size(each)) then
        each = counts
      else
        call set_wrong(wrong, "counts: expected one entry for each rank")
      end if
    end if
    if (from%element_count /= sum(each)) &
      call set_wrong(wrong, "source: expected the blocks of all ranks")
    if (to%element_count /= each(tutti_rank(communicator) + 1)) &
      call set_wrong(wrong, "target: expected this rank's entry of counts")
    arguments%source = from%data
    arguments%target = to%data
    arguments%reduction = reduction_of(reduction, from, wrong)
    if (allocated(wrong)) each = -1
    arguments%element_counts = c_loc(each)
    if (present(agreement)) arguments%agreement = agreement
    if (present(algorithm)) arguments%algorithm = algorithm
    result = tutti_reduce_scatter_init(communicator, arguments, operation, why)
    call refuse(wrong, result, why)
    call conclude(result, why, status, failure)
  end subroutine tutti_reduce_scatter
end module tutti
