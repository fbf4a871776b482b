# Promise: under a launcher the bench is right, and stands beside the MPI that it was built for.
if(TARGET tutti-bench)
  foreach(ranks 1 2 4)
    tutti_mpi_test(bench_mpi_${ranks} ${ranks} tutti-bench barrier,allreduce --check --against mpi
      --iterations 40 --bytes 8,1K --format json)
    set_tests_properties(bench_mpi_${ranks} PROPERTIES
      FAIL_REGULAR_EXPRESSION "\"correct\":(false|null)")
  endforeach()
  tutti_mpi_test(bench_mpi_beside 2 tutti-bench barrier --against mpi --iterations 100 --format json)
  set_tests_properties(bench_mpi_beside PROPERTIES
    PASS_REGULAR_EXPRESSION "\"name\":\"(Open MPI|MPICH) [0-9.]+\"")
  tutti_mpi_test(bench_mpi_user_4 4 tutti-bench allreduce --op user --check --against mpi
    --iterations 20 --bytes 8)
  tutti_mpi_test(bench_mpi_probes 2 tutti-bench all --bytes 8 --iterations 400 --against mpi)
  tutti_mpi_test(bench_mpi_vectors 4 tutti-bench gatherv,scatterv --root 2 --check --against mpi
    --iterations 20 --bytes 8,10000 --format json)
  set_tests_properties(bench_mpi_vectors PROPERTIES
    FAIL_REGULAR_EXPRESSION "\"correct\":(false|null)|\"mpi\":null|\"against\":null")
  # What the README's picture is drawn by.
  add_test(NAME bench_mpi_picture COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/picture.sh
    ${PROJECT_SOURCE_DIR}/microbench/picture.py ${TUTTI_MPIRUN} ${TUTTI_MPIRUN_ARGUMENTS} -n 2
    $<TARGET_FILE:tutti-bench> allreduce,broadcast --bytes 8,64K --iterations 40 --against mpi
    --format json)
  set_tests_properties(bench_mpi_picture PROPERTIES LABELS mpi TIMEOUT 120 PROCESSORS 2
    ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0")
  # All launches but the last ones are of scripts that stand in for the launchers.
  set(with_build)
  if(TUTTI_MPIRUN MATCHES "openmpi")
    set(with_build ${CMAKE_BINARY_DIR})
  endif()
  add_test(NAME bench_mpi_compared COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/compare_mpi_test.py
    ${PROJECT_SOURCE_DIR}/microbench/compare_mpi.py ${with_build})
  set_tests_properties(bench_mpi_compared PROPERTIES LABELS mpi TIMEOUT 120 PROCESSORS 2
    ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0")
  tutti_mpi_test(tune_mpi 2 tutti-tune --budget 2 --collectives barrier,broadcast --bytes 8 --fresh
    --out ${CMAKE_CURRENT_BINARY_DIR}/tune_mpi.json)
  set_tests_properties(tune_mpi PROPERTIES
    PASS_REGULAR_EXPRESSION "file: ${CMAKE_CURRENT_BINARY_DIR}/tune_mpi.json")
  tutti_mpi_test(bench_mpi_refused 2 tutti-bench allreduce --per-round 0)
  set_tests_properties(bench_mpi_refused PROPERTIES WILL_FAIL ON)
endif()
