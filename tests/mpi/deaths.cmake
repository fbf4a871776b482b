# Ranks that are killed, stop, give up or leave; the launcher must let the others go on.
add_executable(mpi_deaths deaths.cpp)
target_link_libraries(mpi_deaths PRIVATE tutti tutti_mpi)
set_target_properties(mpi_deaths PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_dependencies(mpi_test_programs mpi_deaths)
# tutti_mpi_deaths(NAME WHAT RUNS RANKS RANKS_PER_NODE LABEL): 0 ranks per node: as many as there are.
function(tutti_mpi_deaths name what runs ranks ranks_per_node label)
  add_test(NAME ${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/deaths.sh ${what} ${runs} ${ranks}
    ${ranks_per_node} $<TARGET_FILE:mpi_deaths> ${TUTTI_MPIRUN} ${TUTTI_MPIRUN_ARGUMENTS})
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT 1800 RUN_SERIAL ON
    ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0")
endfunction()
tutti_mpi_deaths(mpi_kill kill 2 4 0 mpi)
tutti_mpi_deaths(mpi_kill_nodes kill 1 4 1 mpi)
tutti_mpi_deaths(mpi_shrink shrink 2 4 2 mpi)
tutti_mpi_deaths(mpi_stop stop 1 3 0 mpi)
tutti_mpi_deaths(mpi_abort abort 1 3 0 mpi)
tutti_mpi_deaths(mpi_leave leave 1 3 0 mpi)
# Where no rank sees another one's process, as on different hosts.
foreach(what kill abort leave shrink)
  tutti_mpi_deaths(mpi_${what}_apart ${what} 1 3 0 mpi)
  tutti_mpi_deaths(soak_mpi_${what}_apart ${what} 25 4 0 soak)
  set_tests_properties(mpi_${what}_apart soak_mpi_${what}_apart PROPERTIES SKIP_RETURN_CODE 77
    ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0;APART=1")
endforeach()
foreach(what kill stop abort leave)
  tutti_mpi_deaths(soak_mpi_${what} ${what} 50 4 0 soak)
  tutti_mpi_deaths(soak_mpi_${what}_nodes ${what} 25 5 2 soak)
endforeach()
