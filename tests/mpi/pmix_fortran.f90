! Promise: ranks that a PMIx server has started meet in Fortran, without MPI; and what is wrong with an
! argument is refused there, too.
program pmix_fortran
  use, intrinsic :: iso_fortran_env, only: int64
  use tutti
  implicit none
  type(tutti_exchange) :: exchange
  type(tutti_context) :: context
  type(tutti_communicator) :: communicator
  type(tutti_operation) :: sum_of_ranks
  type(tutti_failure) :: failure
  integer(int64), target :: mine, whole
  integer(int64) :: ranks
  integer(c_int32_t) :: status
  if (tutti_pmix_exchange(-1_int64, exchange, failure) /= TUTTI_INVALID_ARGUMENT) error stop 2
  if (index(tutti_failure_text(failure), "timeout_ns -1: expected 0 or more") == 0) error stop 3
  if (tutti_pmix_exchange(0_int64, exchange) /= TUTTI_OK) error stop 4
  call tutti_make_context(context)
  call tutti_make_communicator(context, exchange, communicator)
  call tutti_allreduce(communicator, mine, whole, tutti_reduction(TUTTI_SUM), sum_of_ranks)
  mine = tutti_rank(communicator)
  if (tutti_start(sum_of_ranks) /= TUTTI_OK) error stop 5
  if (tutti_wait(sum_of_ranks, 20 * tutti_second) /= TUTTI_OK) error stop 6
  ranks = tutti_rank_count(communicator)
  if (ranks /= 3 .or. whole /= ranks * (ranks - 1) / 2) error stop 7
  status = tutti_operation_free(sum_of_ranks)
  status = tutti_communicator_free(communicator)
  status = tutti_context_free(context)
  if (tutti_exchange_free(exchange) /= TUTTI_OK) error stop 8
end program pmix_fortran
