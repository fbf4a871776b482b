# The modules for Fortran (bindings/fortran).
if(NOT TARGET tutti_fortran)
  return()
endif()
enable_language(Fortran)  # in this folder, too
add_executable(process_fortran fortran/collectives.f90)
target_link_libraries(process_fortran PRIVATE tutti_fortran)
target_compile_options(process_fortran PRIVATE -Wall -Wextra
  $<$<COMPILE_LANG_AND_ID:Fortran,GNU>:-std=f2018>)
set_target_properties(process_fortran PROPERTIES TUTTI_OWN_TARGET OFF
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests
  Fortran_MODULE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/process_fortran.modules)
add_test(NAME process_fortran COMMAND process_fortran)
add_test(NAME process_fortran_example
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/example.sh $<TARGET_FILE:dot_product_fortran>)
set_tests_properties(process_fortran process_fortran_example PROPERTIES LABELS process TIMEOUT 120)
