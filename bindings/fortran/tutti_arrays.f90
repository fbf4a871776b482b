! What module tutti needs to know of arrays and blocks, and how it tells of mistakes.
module tutti_arrays
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit
  use tutti_c
  implicit none
  private
  public :: array_known, as_text, bytes_of, conclude, describe, is_of_blocks, is_of_one_type
  public :: is_reduced, lay_out
  public :: list_of, ranks_of, reduction_of, refuse, root_of, set_wrong, tutti_fortran_describe

  ! As in descriptor.c.
  type, bind(c) :: array_known
    type(c_ptr) :: data = c_null_ptr
    integer(c_int64_t) :: element_count = 0
    integer(c_int64_t) :: element_bytes = 1
    integer(c_int32_t) :: type = TUTTI_OTHER
    integer(c_int32_t) :: is_contiguous = 1
  end type array_known

  interface
    subroutine tutti_fortran_describe(array, known) bind(c)
      import
      type(*), dimension(..), target, intent(in) :: array
      type(array_known), intent(inout) :: known
    end subroutine tutti_fortran_describe
  end interface

contains

  ! Keeps the text of the first mistake.
  subroutine set_wrong(wrong, text)
    character(:), allocatable, intent(inout) :: wrong
    character(*), intent(in) :: text
    if (.not. allocated(wrong)) wrong = text
  end subroutine set_wrong

  subroutine describe(array, name, known, wrong)
    type(*), dimension(..), target, intent(in), optional :: array
    character(*), intent(in) :: name
    type(array_known), intent(out) :: known
    character(:), allocatable, intent(inout) :: wrong
    if (.not. present(array)) return
    call tutti_fortran_describe(array, known)
    if (known%element_count < 0) then
      call set_wrong(wrong, name // " is of assumed size: pass a section with bounds, " // name // &
        "(1:n)")
    else if (known%is_contiguous == 0) then
      call set_wrong(wrong, name // " is not contiguous: pass an array that is, and copy")
    end if
  end subroutine describe

  subroutine is_of_one_type(from, to, wrong)
    type(array_known), intent(in) :: from, to
    character(:), allocatable, intent(inout) :: wrong
    if (from%type /= to%type .or. from%element_bytes /= to%element_bytes) &
      call set_wrong(wrong, "source and target differ in type")
  end subroutine is_of_one_type

  ! Source and target have as many elements, of one type.
  subroutine is_reduced(from, to, wrong)
    type(array_known), intent(in) :: from, to
    character(:), allocatable, intent(inout) :: wrong
    if (from%element_count /= to%element_count) &
      call set_wrong(wrong, "source and target differ in size")
    call is_of_one_type(from, to, wrong)
  end subroutine is_reduced

  ! `all` has room for a block like `block` of each rank.
  subroutine is_of_blocks(all, name, block, rank_count, wrong)
    type(array_known), intent(in) :: all, block
    character(*), intent(in) :: name
    integer(c_int64_t), intent(in) :: rank_count
    character(:), allocatable, intent(inout) :: wrong
    call is_of_one_type(all, block, wrong)
    if (all%element_count /= block%element_count * rank_count) &
      call set_wrong(wrong, name // " needs room for the elements of the other buffer once a rank")
  end subroutine is_of_blocks

  ! The length of an array; if something is wrong, -1, which C refuses on every rank.
  function bytes_of(known, wrong) result(bytes)
    type(array_known), intent(in) :: known
    character(:), allocatable, intent(in) :: wrong
    integer(c_int64_t) :: bytes
    bytes = known%element_count * known%element_bytes
    if (allocated(wrong)) bytes = -1
  end function bytes_of

  function ranks_of(communicator) result(count)
    type(tutti_communicator), intent(in) :: communicator
    integer(c_int64_t) :: count
    count = tutti_rank_count(communicator)
  end function ranks_of

  function root_of(root) result(rank)
    integer(c_int32_t), intent(in), optional :: root
    integer(c_int32_t) :: rank
    rank = 0
    if (present(root)) rank = root
  end function root_of

  ! Whether elements of an array can be taken for what the reduction says they are.  Fortran has no
  ! unsigned integers, and reals of 2 bytes only in integers of that size.
  pure logical function is_taken_as(known, type)
    type(array_known), intent(in) :: known
    integer(c_int32_t), intent(in) :: type
    select case (type)
    case (TUTTI_UINT32)
      is_taken_as = known%type == TUTTI_INT32
    case (TUTTI_UINT64)
      is_taken_as = known%type == TUTTI_INT64
    case (TUTTI_FLOAT16, TUTTI_BFLOAT16)
      is_taken_as = known%type == TUTTI_OTHER .and. known%element_bytes == 2
    case default
      is_taken_as = known%type == type
    end select
  end function is_taken_as

  function reduction_of(given, known, wrong) result(reduction)
    type(tutti_reduction), intent(in) :: given
    type(array_known), intent(in) :: known
    character(:), allocatable, intent(inout) :: wrong
    type(tutti_reduction) :: reduction
    reduction = given
    if (given%which /= TUTTI_USER .and. given%type /= TUTTI_OTHER) then
      if (.not. is_taken_as(known, given%type)) &
        call set_wrong(wrong, "source has elements of another type than the reduction")
    else if (given%which /= TUTTI_USER) then
      if (known%type == TUTTI_OTHER) &
        call set_wrong(wrong, "source has elements that no operator by name combines: " // &
          "expected integer or real of 4 or 8 bytes, or pass tutti_user_operator()")
      reduction%type = known%type
    else
      if (given%element_bytes == 0) then
        reduction%element_bytes = known%element_bytes
        reduction%type = known%type
      else if (given%element_bytes /= known%element_bytes) then
        call set_wrong(wrong, "the reduction is for another element size than that of source")
      end if
    end if
  end function reduction_of

  ! Blocks in bytes.  Away from the root (`counts_here` is false) all of them are empty.
  subroutine lay_out(known, name, counts, offsets, rank_count, bytes, begins, wrong, counts_here)
    type(array_known), intent(in) :: known
    character(*), intent(in) :: name
    integer(c_int64_t), intent(in) :: counts(:)
    integer(c_int64_t), intent(in), optional :: offsets(:)
    integer(c_int64_t), intent(in) :: rank_count
    integer(c_int64_t), allocatable, intent(out) :: bytes(:), begins(:)
    character(:), allocatable, intent(inout) :: wrong
    logical, intent(in), optional :: counts_here
    integer(c_int64_t) :: rank
    allocate(bytes(rank_count), begins(rank_count), source=0_c_int64_t)
    if (present(counts_here)) then
      if (.not. counts_here) return
    end if
    if (size(counts, kind=c_int64_t) /= rank_count) then
      call set_wrong(wrong, "counts of " // name // ": expected one entry for each rank")
      return
    end if
    if (present(offsets)) then
      if (size(offsets, kind=c_int64_t) /= rank_count) then
        call set_wrong(wrong, "offsets of " // name // ": expected one entry for each rank")
        return
      end if
      begins = offsets
    else
      do rank = 2, rank_count
        begins(rank) = begins(rank - 1) + counts(rank - 1)
      end do
    end if
    if (any(counts < 0) .or. any(begins < 0)) then
      call set_wrong(wrong, "counts and offsets of " // name // ": expected 0 or more")
    else if (any(begins > known%element_count) .or. any(counts > known%element_count - begins)) then
      call set_wrong(wrong, name // " has fewer elements than its blocks")
    end if
    bytes = counts * known%element_bytes
    begins = begins * known%element_bytes
  end subroutine lay_out

  function list_of(values) result(list)
    integer(c_int32_t), intent(in), optional, target, contiguous :: values(:)
    type(tutti_counts) :: list
    if (.not. present(values)) return
    list%values = c_loc(values)
    list%count = size(values)
  end function list_of

  ! The library has refused the length that stands for a mistake that was found here: its
  ! text is replaced by that of the mistake.
  subroutine refuse(wrong, result, why)
    character(:), allocatable, intent(in) :: wrong
    integer(c_int32_t), intent(in) :: result
    type(tutti_failure), intent(inout) :: why
    integer :: i
    if (.not. allocated(wrong) .or. result /= TUTTI_INVALID_ARGUMENT) return
    why%text = c_null_char
    do i = 1, len(wrong)
      why%text(i) = wrong(i:i)
    end do
  end subroutine refuse

  subroutine conclude(result, why, status, failure)
    integer(c_int32_t), intent(in) :: result
    type(tutti_failure), intent(in) :: why
    integer(c_int32_t), intent(out), optional :: status
    type(tutti_failure), intent(out), optional :: failure
    if (present(status)) status = result
    if (present(failure)) failure = why
    if (result < 0 .and. .not. present(status) .and. .not. present(failure)) then
      write(error_unit, "(2a)") "tutti: ", as_text(why%text)
      error stop 1
    end if
  end subroutine conclude

  function as_text(characters) result(text)
    character(kind=c_char), intent(in) :: characters(:)
    character(:), allocatable :: text
    integer :: i
    allocate(character(size(characters)) :: text)
    do i = 1, size(characters)
      if (characters(i) == c_null_char) exit
      text(i:i) = characters(i)
    end do
    text = text(:i - 1)
  end function as_text
end module tutti_arrays
