module dot_product_ranks
  use, intrinsic :: iso_fortran_env, only: real64
  use tutti
  implicit none
contains
  function run(exchange, unused) bind(c) result(exit_status)
    type(tutti_exchange), value :: exchange
    type(c_ptr), value :: unused
    integer(c_int) :: exit_status
    type(tutti_context) :: context
    type(tutti_communicator) :: communicator
    type(tutti_operation) :: dot
    real(real64) :: part(1000)
    real(real64), target :: mine, whole
    integer :: iteration
    integer(c_int32_t) :: status
    exit_status = merge(0, 1, .not. c_associated(unused))
    call tutti_make_context(context)  ! device, registered memory
    call tutti_make_communicator(context, exchange, communicator)
    part = 0.5_real64  ! this rank's part of a long vector
    ! Planned and connected once.
    call tutti_allreduce(communicator, mine, whole, tutti_reduction(TUTTI_SUM), dot)
    do iteration = 1, 3
      mine = dot_product(part, part)
      status = tutti_start(dot)  ! never waits
      ! ... compute here what does not need the result; call tutti_test(dot) now and then ...
      if (status == TUTTI_OK) status = tutti_wait(dot, 5 * tutti_second)
      if (status /= TUTTI_OK) then  ! after a timeout one could also wait on
        print "(a)", tutti_describe_text(dot)
        exit_status = 1
        return
      end if
    end do
    print "(a, i0, a, i0)", "rank ", tutti_rank(communicator), ": |x|^2 = ", nint(whole)
    status = tutti_operation_free(dot)
    status = tutti_communicator_free(communicator)
    status = tutti_context_free(context)
    flush (6)
  end function run
end module dot_product_ranks

program dot_product_fortran
  use dot_product_ranks
  implicit none
  type(tutti_local_result) :: ranks(2)
  type(tutti_failure) :: failure
  if (tutti_run_local(2, c_funloc(run), c_null_ptr, ranks, failure) /= TUTTI_OK) then
    print "(a)", tutti_failure_text(failure)
    error stop 1
  end if
  if (any(ranks%exit_status /= 0) .or. any(ranks%signal /= 0)) error stop 1
end program dot_product_fortran
