# libtutti_mpi_NAME, shared and static, for each MPI that was found (found_mpis.cmake).  MPIs differ in
# what MPI_Comm is, so there is a library for each; and beside it tutti/NAME/libtutti-mpi.so, which
# tutti-mpirun loads into programs (bindings/mpi).
set(tutti_packaged_mpis)
if(NOT tutti_found_mpis)
  return()
endif()

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
  if(TARGET tutti_interposer_${name})
    install(TARGETS tutti_interposer_${name}
      LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tutti/${name} COMPONENT mpi-${name})
  endif()
endfunction()

foreach(name IN LISTS tutti_found_mpis)
  tutti_package_mpi(${name} FOLDERS ${tutti_${name}_folders} LIBRARIES ${tutti_${name}_libraries})
  list(APPEND tutti_packaged_mpis ${name})
endforeach()

# The script finds the libraries from its own place.
set(mpirun_script ${CMAKE_CURRENT_BINARY_DIR}/tutti-mpirun)
string(REGEX REPLACE "[^/]+" ".." bin_up ${CMAKE_INSTALL_BINDIR})
set(interposer_up ${bin_up}/${CMAKE_INSTALL_LIBDIR}/tutti)
configure_file(${PROJECT_SOURCE_DIR}/bindings/mpi/tutti-mpirun.in ${mpirun_script} @ONLY)
install(PROGRAMS ${mpirun_script} TYPE BIN COMPONENT mpirun)
