# tutti_mpi_name(RESULT FOLDER...): which MPI has its mpi.h in one of the folders, or where the compiler
# looks by itself, as MPI's wrapper does (CC=mpicc): openmpi, mpich, or nothing.  What is derived from
# MPICH (Intel MPI, MVAPICH, Cray MPICH) has its interface and counts as that.  Also installed, for
# find_package(tutti).
function(tutti_mpi_name result)
  set(lines)
  foreach(folder IN LISTS ARGN)
    if(EXISTS "${folder}/mpi.h")
      file(STRINGS "${folder}/mpi.h" lines REGEX "define +(OPEN_MPI|OMPI_MAJOR_VERSION|MPICH_VERSION|MPICH_NAME) ")
      break()
    endif()
  endforeach()
  set(compilers ${CMAKE_C_COMPILER} ${CMAKE_CXX_COMPILER} ${CMAKE_Fortran_COMPILER})
  list(POP_FRONT compilers compiler)
  if(NOT lines AND compiler)
    execute_process(COMMAND ${compiler} -E -dM -x c -include mpi.h /dev/null OUTPUT_VARIABLE lines
      ERROR_QUIET)
  endif()
  set(${result} "" PARENT_SCOPE)
  if(lines MATCHES "define +(OPEN_MPI|OMPI_MAJOR_VERSION) ")
    set(${result} openmpi PARENT_SCOPE)
  elseif(lines MATCHES "define +(MPICH_VERSION|MPICH_NAME) ")
    set(${result} mpich PARENT_SCOPE)
  endif()
endfunction()
