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

set(mpi_exports ${CMAKE_CURRENT_BINARY_DIR}/mpi_exports.map)
configure_file(mpi_exports.map.in ${mpi_exports} @ONLY)

# tutti_package_mpi(NAME FOLDERS folder... LIBRARIES library...)
function(tutti_package_mpi name)
  cmake_parse_arguments(MPI "" "" "FOLDERS;LIBRARIES" ${ARGN})
  set(objects tutti_mpi_${name}_objects)
  add_library(${objects} OBJECT ${PROJECT_SOURCE_DIR}/bootstrap/mpi_exchange.cpp
    ${PROJECT_SOURCE_DIR}/bootstrap/mpi_exchange_c.cpp)
  target_link_libraries(${objects} PRIVATE tutti_bootstrap)
  target_include_directories(${objects} SYSTEM PRIVATE ${MPI_FOLDERS})
  target_compile_definitions(${objects} PRIVATE OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
  add_library(tutti_mpi_${name}_archive STATIC $<TARGET_OBJECTS:${objects}>)
  add_library(tutti_mpi_${name}_shared SHARED $<TARGET_OBJECTS:${objects}>)
  foreach(kind archive shared)
    set_target_properties(tutti_mpi_${name}_${kind} PROPERTIES OUTPUT_NAME tutti_mpi_${name}
      LINKER_LANGUAGE CXX EXPORT_NAME mpi_${name}_${kind}
      ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}
      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
    target_link_libraries(tutti_mpi_${name}_${kind} INTERFACE $<INSTALL_INTERFACE:tutti::${kind}>)
    target_compile_definitions(tutti_mpi_${name}_${kind} INTERFACE
      OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
  endforeach()
  target_link_options(tutti_mpi_${name}_archive INTERFACE
    $<INSTALL_INTERFACE:LINKER:--exclude-libs,libtutti_mpi_${name}.a>)
  set_target_properties(tutti_mpi_${name}_shared PROPERTIES VERSION ${PROJECT_VERSION}
    SOVERSION ${tutti_soversion} LINK_DEPENDS ${mpi_exports} SKIP_BUILD_RPATH ON)
  # The few internal functions that it needs, which libtutti does not export, come from the archive.
  # What libtutti has is taken from there, so that there is one of each.
  target_link_libraries(tutti_mpi_${name}_shared PRIVATE $<TARGET_FILE:tutti_shared>
    $<TARGET_FILE:tutti_bootstrap> ${MPI_LIBRARIES} Threads::Threads)
  add_dependencies(tutti_mpi_${name}_shared tutti_shared tutti_bootstrap)
  target_link_options(tutti_mpi_${name}_shared PRIVATE -Wl,-z,defs
    -Wl,--version-script=${mpi_exports})

  set(component mpi-${name})
  install(TARGETS tutti_mpi_${name}_shared tutti_mpi_${name}_archive EXPORT tutti_mpi_${name}
    LIBRARY COMPONENT ${component} ARCHIVE COMPONENT ${component})
  install(EXPORT tutti_mpi_${name} NAMESPACE tutti:: FILE tutti-mpi-${name}.cmake
    DESTINATION ${package_folder} COMPONENT ${component})
  set(mpi_name ${name})
  configure_file(tutti-mpi.pc.in tutti-mpi-${name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tutti-mpi-${name}.pc DESTINATION ${pc_folder}
    COMPONENT ${component})
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
