# Ranks that a PMIx server has started, without MPI in the program: Open MPI's launcher, and Slurm's srun.
if(NOT TARGET tutti_pmix OR NOT version MATCHES "Open MPI|OpenRTE")
  return()
endif()
add_executable(pmix_exchange_test pmix_exchange_test.cpp)
target_link_libraries(pmix_exchange_test PRIVATE tutti tutti_pmix PkgConfig::PMIX)
set_target_properties(pmix_exchange_test PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
foreach(ranks 1 3)
  tutti_mpi_test(pmix_meet_${ranks} ${ranks} pmix_exchange_test meet)
endforeach()
tutti_mpi_test(pmix_late 3 pmix_exchange_test late)
tutti_mpi_test(pmix_told 3 pmix_exchange_test told)
tutti_mpi_test(pmix_left 3 pmix_exchange_test left)
tutti_mpi_test(pmix_death 3 pmix_exchange_test death)
# The launcher would end the job, and would say that a rank was killed.
set_tests_properties(pmix_death PROPERTIES
  ENVIRONMENT "PRTE_MCA_prte_enable_recovery=1;OMPI_MCA_orte_enable_recovery=1"
  PASS_REGULAR_EXPRESSION "rank 0 heard of it\n(.*\n)*rank 2 heard of it|rank 2 heard of it\n(.*\n)*rank 0 heard of it"
  FAIL_REGULAR_EXPRESSION "wrong:")
# The example of docs/getting_started.md.
tutti_mpi_test(pmix_example 2 under_pmix)
if(TARGET tutti_fortran)
  enable_language(Fortran)  # in this folder, too
  add_executable(pmix_fortran pmix_fortran.f90)
  target_link_libraries(pmix_fortran PRIVATE tutti_fortran tutti_pmix)
  set_target_properties(pmix_fortran PROPERTIES TUTTI_OWN_TARGET OFF
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  tutti_mpi_test(pmix_fortran 3 pmix_fortran)
endif()
add_test(NAME pmix_no_server COMMAND pmix_exchange_test refused)
add_test(NAME pmix_no_server_slurm COMMAND pmix_exchange_test refused)
set_tests_properties(pmix_no_server PROPERTIES LABELS mpi TIMEOUT 60)
set_tests_properties(pmix_no_server_slurm PROPERTIES LABELS mpi TIMEOUT 60 ENVIRONMENT SLURM_STEP_ID=0)
# Slurm's daemons belong to the test, which is skipped where they are not installed.
add_test(NAME pmix_slurm COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/slurm.sh $<TARGET_FILE:pmix_exchange_test>
  $<TARGET_FILE:under_mpi> $<$<TARGET_EXISTS:tutti-bench>:$<TARGET_FILE:tutti-bench>>)
set_tests_properties(pmix_slurm PROPERTIES LABELS mpi TIMEOUT 120 PROCESSORS 2 SKIP_RETURN_CODE 77)
if(TUTTI_SANITIZE MATCHES address)
  set_tests_properties(pmix_slurm PROPERTIES ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0")
endif()
