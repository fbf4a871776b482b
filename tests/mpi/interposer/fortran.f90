! Programs in Fortran come to MPI by three ways: mpif.h, the module mpi and the module mpi_f08.  Open MPI
! does their calls by PMPI_X, MPICH by MPI_X; either way they are taken, and the results are right.
module counts
  use, intrinsic :: iso_c_binding
  implicit none
  interface
    function dlsym(handle, name) bind(C) result(address)
      import :: c_ptr, c_char, c_funptr
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      type(c_funptr) :: address
    end function
  end interface
  abstract interface
    function calls_of(name, taken, passed) bind(C) result(is_unknown)
      import :: c_char, c_long_long, c_int
      character(kind=c_char), intent(in) :: name(*)
      integer(c_long_long), intent(out) :: taken, passed
      integer(c_int) :: is_unknown
    end function
  end interface
contains
  function calls_taken(name) result(taken)
    character(*), intent(in) :: name
    integer(c_long_long) :: taken, passed
    procedure(calls_of), pointer :: calls
    type(c_funptr) :: address
    address = dlsym(c_null_ptr, "tutti_mpi_calls" // c_null_char)
    call require(c_associated(address), "libtutti-mpi is not loaded")
    call c_f_procpointer(address, calls)
    call require(calls(name // c_null_char, taken, passed) == 0, name // " is not known")
  end function

  subroutine require(is_so, what)
    logical, intent(in) :: is_so
    character(*), intent(in) :: what
    if (is_so) return
    print "(2a)", "wrong: ", what
    error stop 1
  end subroutine
end module

subroutine by_mpif_h
  use counts
  implicit none
  include "mpif.h"
  include "fortran_calls.inc"
end subroutine

subroutine by_module_mpi
  use counts
  use mpi
  implicit none
  include "fortran_calls.inc"
end subroutine

subroutine by_module_mpi_f08
  use counts
  use mpi_f08
  implicit none
  include "fortran_calls.inc"
end subroutine

program fortran
  use mpi_f08
  implicit none
  call MPI_Init()
  call by_mpif_h
  call by_module_mpi
  call by_module_mpi_f08
  call MPI_Finalize()
end program
