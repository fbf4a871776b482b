# Promise: under a launcher the bench is right, and stands beside the MPI that it was built for.
if(TARGET tutti-bench)
  foreach(ranks 1 2 4)
    tutti_mpi_test(bench_mpi_${ranks} ${ranks} tutti-bench barrier,allreduce --check --against mpi
      --iterations 100 --bytes 8,1K --format json)
    set_tests_properties(bench_mpi_${ranks} PROPERTIES
      FAIL_REGULAR_EXPRESSION "\"correct\":(false|null)")
  endforeach()
  tutti_mpi_test(bench_mpi_beside 2 tutti-bench barrier --against mpi --iterations 100 --format json)
  set_tests_properties(bench_mpi_beside PROPERTIES
    PASS_REGULAR_EXPRESSION "\"name\":\"(Open MPI|MPICH) [0-9.]+\"")
  tutti_mpi_test(bench_mpi_user_4 4 tutti-bench allreduce --op user --check --against mpi
    --iterations 50 --bytes 8)
  tutti_mpi_test(bench_mpi_probes 2 tutti-bench all --bytes 8 --iterations 400 --against mpi)
  tutti_mpi_test(bench_mpi_refused 2 tutti-bench allreduce --per-round 0)
  set_tests_properties(bench_mpi_refused PROPERTIES WILL_FAIL ON)
endif()
