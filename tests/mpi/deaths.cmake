# Ranks that are killed, stop, give up or leave; the launcher must let the others go on.
set(meetings mpi)
if(TARGET tutti_pmix AND version MATCHES "Open MPI|OpenRTE")
  list(APPEND meetings pmix)
endif()
foreach(meeting ${meetings})
  add_executable(${meeting}_deaths deaths.cpp meeting_by_${meeting}.cpp)
  target_link_libraries(${meeting}_deaths PRIVATE tutti tutti_${meeting})
  target_include_directories(${meeting}_deaths PRIVATE ${PROJECT_SOURCE_DIR}/tests
    ${CMAKE_CURRENT_SOURCE_DIR})
  set_target_properties(${meeting}_deaths PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_dependencies(mpi_test_programs ${meeting}_deaths)
endforeach()
# tutti_mpi_deaths(NAME WHAT RUNS RANKS RANKS_PER_NODE LABEL [PROGRAM]): 0 ranks per node: as many as there
# are.
function(tutti_mpi_deaths name what runs ranks ranks_per_node label)
  set(programs mpi_deaths ${ARGN})
  list(POP_BACK programs program)
  add_test(NAME ${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/deaths.sh ${what} ${runs} ${ranks}
    ${ranks_per_node} $<TARGET_FILE:${program}> ${TUTTI_MPIRUN} ${TUTTI_MPIRUN_ARGUMENTS})
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
# Whatever the seed says, up to eight ranks.
foreach(meeting ${meetings})
  tutti_mpi_deaths(soak_${meeting}_chaos any 100 8 0 soak ${meeting}_deaths)
endforeach()
if(pmix IN_LIST meetings)
  tutti_mpi_deaths(pmix_chaos any 4 4 0 mpi pmix_deaths)
endif()
