# tutti_mpi_name(RESULT FOLDER...): which MPI has its mpi.h in one of the folders: openmpi, mpich, or
# nothing.  What is derived from MPICH (Intel MPI, MVAPICH, Cray MPICH) has its interface and counts
# as that.  Also installed, for find_package(tutti).
function(tutti_mpi_name result)
  set(${result} "" PARENT_SCOPE)
  foreach(folder IN LISTS ARGN)
    if(NOT EXISTS "${folder}/mpi.h")
      continue()
    endif()
    file(STRINGS "${folder}/mpi.h" lines REGEX "define +(OPEN_MPI|OMPI_MAJOR_VERSION|MPICH_VERSION|MPICH_NAME) ")
    if(lines MATCHES "OPEN_MPI|OMPI_MAJOR_VERSION")
      set(${result} openmpi PARENT_SCOPE)
    elseif(lines MATCHES "MPICH")
      set(${result} mpich PARENT_SCOPE)
    endif()
    return()
  endforeach()
endfunction()
