# libtutti_mpi_NAME, shared and static, for each MPI: the one that this build has found, and others
# that have a compiler wrapper mpicc.NAME, as on Debian.  MPIs differ in what MPI_Comm is, so there is
# a library for each.
set(tutti_packaged_mpis)
if(NOT MPI_C_FOUND OR NOT TUTTI_INSTALL_MPI)
  return()
endif()
include(${CMAKE_CURRENT_SOURCE_DIR}/mpi_name.cmake)
tutti_mpi_name(own_mpi ${MPI_C_INCLUDE_DIRS})
# A compiler that is MPI's wrapper (CC=mpicc) would find its own mpi.h before that of another MPI.
tutti_mpi_name(mpi_of_compiler)

# Headers as programs include them, below the same name as in a project that embeds tutti.
install(FILES ${PROJECT_SOURCE_DIR}/bootstrap/mpi_exchange.h ${PROJECT_SOURCE_DIR}/bootstrap/mpi_exchange.hpp
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tutti COMPONENT core-dev)

# tutti_package_mpi(NAME FOLDERS folder... LIBRARIES library...)
function(tutti_package_mpi name)
  cmake_parse_arguments(MPI "" "" "FOLDERS;LIBRARIES" ${ARGN})
  set(objects tutti_mpi_${name}_objects)
  add_library(${objects} OBJECT ${PROJECT_SOURCE_DIR}/bootstrap/mpi_exchange.cpp
    ${PROJECT_SOURCE_DIR}/bootstrap/mpi_exchange_c.cpp)
  target_link_libraries(${objects} PRIVATE tutti_bootstrap)
  target_include_directories(${objects} SYSTEM PRIVATE ${MPI_FOLDERS})
  target_compile_definitions(${objects} PRIVATE OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
  tutti_package_exchange(NAME mpi_${name} COMPONENT mpi-${name} VERSION MPI FUNCTION mpi_exchange
    OBJECTS ${objects} LIBRARIES ${MPI_LIBRARIES} DEFINITIONS OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
  set(mpi_name ${name})
  configure_file(tutti-mpi.pc.in tutti-mpi-${name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tutti-mpi-${name}.pc DESTINATION ${pc_folder}
    COMPONENT mpi-${name})
endfunction()

foreach(name IN LISTS TUTTI_INSTALL_MPI)
  if(name STREQUAL own_mpi)
    tutti_package_mpi(${name} FOLDERS ${MPI_C_INCLUDE_DIRS} LIBRARIES ${MPI_C_LIBRARIES})
    list(APPEND tutti_packaged_mpis ${name})
    continue()
  endif()
  find_program(TUTTI_MPICC_${name} mpicc.${name})
  mark_as_advanced(TUTTI_MPICC_${name})
  if(NOT TUTTI_MPICC_${name} OR CMAKE_CROSSCOMPILING OR mpi_of_compiler)
    continue()
  endif()
  # The command that it would run: both MPIs understand -show.
  execute_process(COMMAND ${TUTTI_MPICC_${name}} -show OUTPUT_VARIABLE command ERROR_QUIET
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  separate_arguments(command UNIX_COMMAND "${command}")
  set(folders ${command})
  list(FILTER folders INCLUDE REGEX "^-I")
  list(TRANSFORM folders REPLACE "^-I" "")
  list(FILTER command INCLUDE REGEX "^-[lL]")
  tutti_mpi_name(found ${folders})
  if(found STREQUAL name)
    tutti_package_mpi(${name} FOLDERS ${folders} LIBRARIES ${command})
    list(APPEND tutti_packaged_mpis ${name})
  endif()
endforeach()
