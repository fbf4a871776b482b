program under_mpi_fortran
  use, intrinsic :: iso_fortran_env, only: real64
  use mpi_f08
  use tutti
  implicit none
  type(tutti_exchange) :: exchange
  type(tutti_context) :: context
  type(tutti_communicator) :: communicator
  type(tutti_operation) :: dot
  type(tutti_failure) :: failure
  real(real64) :: part(1000)
  real(real64), target :: mine, whole
  integer :: iteration
  integer(c_int32_t) :: status
  call MPI_Init()
  status = tutti_mpi_exchange(MPI_COMM_WORLD%MPI_VAL, 30 * tutti_second, exchange, failure)
  if (status /= TUTTI_OK) then
    print "(a)", tutti_failure_text(failure)
    error stop 1
  end if
  call tutti_make_context(context)  ! device, registered memory
  call tutti_make_communicator(context, exchange, communicator)
  part = 0.5_real64  ! this rank's part of a long vector
  call tutti_allreduce(communicator, mine, whole, tutti_reduction(TUTTI_SUM), dot)
  do iteration = 1, 3
    mine = dot_product(part, part)
    status = tutti_start(dot)  ! never waits
    if (status == TUTTI_OK) status = tutti_wait(dot, 5 * tutti_second)
    if (status /= TUTTI_OK) then
      print "(a)", tutti_describe_text(dot)
      error stop 1
    end if
  end do
  print "(a, i0, a, i0)", "rank ", tutti_rank(communicator), ": |x|^2 = ", nint(whole)
  status = tutti_operation_free(dot)  ! everything of tutti ends before MPI_Finalize
  status = tutti_communicator_free(communicator)
  status = tutti_context_free(context)
  status = tutti_exchange_free(exchange)
  call MPI_Finalize()
end program under_mpi_fortran
