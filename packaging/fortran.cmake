# The archive for Fortran and its modules, in a folder for the compilers that read them.
if(NOT TARGET tutti_fortran)
  return()
endif()
include(${CMAKE_CURRENT_SOURCE_DIR}/fortran_modules.cmake)
enable_language(Fortran)  # in this folder, too
tutti_fortran_modules(fortran_modules ${CMAKE_Fortran_COMPILER_ID} ${CMAKE_Fortran_COMPILER_VERSION})
set(fortran_folder ${CMAKE_INSTALL_LIBDIR}/fortran/${fortran_modules})

set_target_properties(tutti_fortran PROPERTIES EXPORT_NAME fortran_archive)
target_include_directories(tutti_fortran INTERFACE $<INSTALL_INTERFACE:${fortran_folder}>)
install(TARGETS tutti_fortran EXPORT tutti_fortran ARCHIVE COMPONENT fortran)
install(EXPORT tutti_fortran NAMESPACE tutti:: FILE tutti-fortran.cmake
  DESTINATION ${package_folder} COMPONENT fortran)
install(FILES ${CMAKE_CURRENT_SOURCE_DIR}/fortran_modules.cmake DESTINATION ${package_folder}
  COMPONENT fortran)
get_target_property(built tutti_fortran Fortran_MODULE_DIRECTORY)
install(FILES ${built}/tutti.mod ${built}/tutti_arrays.mod ${built}/tutti_c.mod
  DESTINATION ${fortran_folder} COMPONENT fortran)
configure_file(tutti-fortran.pc.in tutti-fortran.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tutti-fortran.pc DESTINATION ${pc_folder} COMPONENT fortran)
