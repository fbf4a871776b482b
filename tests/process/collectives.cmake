# Collectives between forked ranks over the software device.
# tutti_process_test(NAME SUBJECT): a test that is about what results are runs beside another one (label
# "parallel"), and one that is about time, deaths or CPUs alone.
set(subjects_of_results bits blocks collectives nodes operator_failures report rooted schedules segments shared_ring single_copy
  soak split staging stale trace)
function(tutti_process_test name subject)
  if(subject IN_LIST subjects_of_results)
    set_tests_properties(${name} PROPERTIES LABELS "process;parallel" TIMEOUT 300)
  else()
    set_tests_properties(${name} PROPERTIES LABELS process TIMEOUT 300 RUN_SERIAL ON)
  endif()
endfunction()
foreach(name bits cancel chaos collectives connections devices failures first_call flags isolation misuse nodes
    operator_failures report rooted schedules segments shrink single_copy blocks split shared_ring shared_ring_stops staging stale
    trace tuning wait zero_copy)
  tutti_test(process_${name} LABEL process TIMEOUT 300
    SOURCES ${name}_test.cpp LINK tutti)
  target_include_directories(process_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  tutti_process_test(process_${name} ${name})
endforeach()
set_tests_properties(process_nodes PROPERTIES ENVIRONMENT GTEST_FILTER=Nodes.*:Domains.*)
set_tests_properties(process_stale PROPERTIES ENVIRONMENT GTEST_FILTER=Stale.*)
set_tests_properties(process_connections PROPERTIES ENVIRONMENT GTEST_FILTER=ConnectionsOfContext.*)
add_test(NAME long_connections COMMAND process_connections --gtest_filter=LongConnections.*)
set_tests_properties(long_connections PROPERTIES LABELS long TIMEOUT 900 RUN_SERIAL ON
  FAIL_REGULAR_EXPRESSION " 0 tests from 0 test suites ran")
add_test(NAME long_stale COMMAND process_stale --gtest_filter=LongStale.*)
set_tests_properties(long_stale PROPERTIES LABELS long TIMEOUT 900 RUN_SERIAL ON
  FAIL_REGULAR_EXPRESSION " 0 tests from 0 test suites ran")
foreach(run "process:seven_and_eight" "long:ten" "soak:nine_eleven_and_twelve")
  string(REPLACE ":" ";" parts ${run})
  list(POP_FRONT parts label ranks)
  set(name ${label}_nodes)
  if(label STREQUAL process)
    set(name process_nodes_of_eight)
  endif()
  add_test(NAME ${name} COMMAND process_nodes --gtest_filter=AllNodes.every_shape_of_${ranks}*)
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT 900 RUN_SERIAL ON
    FAIL_REGULAR_EXPRESSION " 0 tests from 0 test suites ran")
endforeach()
set_tests_properties(process_nodes_of_eight PROPERTIES LABELS "process;parallel" RUN_SERIAL OFF)
if(TUTTI_SANITIZE MATCHES thread)  # shapes are no matter of threads: those of six will do
  set_tests_properties(process_nodes_of_eight PROPERTIES DISABLED ON)
endif()
# Where a first write needs the help of the other side, and where every write does.
add_test(NAME process_shared_ring_mapped COMMAND process_shared_ring_stops
  --gtest_filter=*stopped*)
add_test(NAME process_shared_ring_bounced COMMAND process_shared_ring
  --gtest_filter=*is_right*:*operations*)
add_test(NAME process_shared_ring_republished COMMAND process_shared_ring
  --gtest_filter=SharedRing.*)
tutti_process_test(process_shared_ring_republished shared_ring)
set_tests_properties(process_shared_ring_republished PROPERTIES ENVIRONMENT TUTTI_SHARED_NOTIFICATIONS=republished
  FAIL_REGULAR_EXPRESSION " 0 tests from 0 test suites ran")
foreach(run mapped:shared:shared_ring_stops bounced:bounce:shared_ring)
  string(REPLACE ":" ";" parts ${run})
  list(POP_FRONT parts name transport subject)
  tutti_process_test(process_shared_ring_${name} ${subject})
  set_tests_properties(process_shared_ring_${name} PROPERTIES
    ENVIRONMENT TUTTI_SOFT_TRANSPORT=${transport}
    FAIL_REGULAR_EXPRESSION " 0 tests from 0 test suites ran")
endforeach()
# ThreadSanitizer does not see what one process hears from another: to it, a chunk that has come back
# around the ring says nothing about what was sent.  So it judges rings of threads.
if(TUTTI_SANITIZE MATCHES thread)
  set_tests_properties(process_shared_ring PROPERTIES ENVIRONMENT GTEST_FILTER=*for_threads)
  set_tests_properties(process_shared_ring_stops process_shared_ring_mapped
    process_shared_ring_bounced process_shared_ring_republished PROPERTIES DISABLED ON)
endif()
# The same where small messages between nodes are polled in memory.  Left out: what is about the
# receives that these do not take.
set(left_out_of_misuse -*too_many_live_operations*)
set(left_out_of_blocks -*every_shape*)
set(left_out_of_connections -LongConnections.*)
set(left_out_of_failures -*mute*)
set(left_out_of_stale -*cannot_be_is_refused*:LongStale.*)
foreach(run bits:1 blocks collectives:1 connections failures isolation:1 misuse rooted schedules:1 split stale)
  string(REPLACE ":" ";" parts ${run})
  list(POP_FRONT parts name ranks_per_node)
  set(environment TUTTI_NOTIFY=flag GTEST_FILTER=*${left_out_of_${name}})
  if(ranks_per_node)  # the others say themselves what the nodes are
    list(APPEND environment TUTTI_RANKS_PER_NODE=${ranks_per_node})
  endif()
  add_test(NAME process_${name}_flags COMMAND process_${name})
  tutti_process_test(process_${name}_flags ${name})
  set_tests_properties(process_${name}_flags PROPERTIES ENVIRONMENT "${environment}"
    FAIL_REGULAR_EXPRESSION " 0 tests from 0 test suites ran")
endforeach()
# The same where ranks that wait sleep until something comes.
foreach(name collectives connections failures rooted split stale)
  add_test(NAME process_${name}_block COMMAND process_${name})
  tutti_process_test(process_${name}_block ${name})
  set_tests_properties(process_${name}_block PROPERTIES ENVIRONMENT "TUTTI_WAIT=block;GTEST_FILTER=-Long*"
    FAIL_REGULAR_EXPRESSION " 0 tests from 0 test suites ran")
endforeach()
if(TUTTI_SANITIZE MATCHES thread)
  set_tests_properties(process_split_block PROPERTIES
    ENVIRONMENT "TUTTI_WAIT=block;GTEST_FILTER=*of_threads*")
  set_tests_properties(process_zero_copy PROPERTIES ENVIRONMENT GTEST_FILTER=*give_what_others_give*
    FAIL_REGULAR_EXPRESSION " 0 tests from 0 test suites ran")
endif()
target_link_libraries(process_schedules PRIVATE tutti_runtime)
target_link_libraries(process_zero_copy PRIVATE tutti_runtime tutti_verbs)
target_link_libraries(process_first_call PRIVATE tutti_runtime tutti_verbs)
target_link_libraries(process_tuning PRIVATE tutti_runtime tutti_tune tutti_verbs)
add_test(NAME soak_agreement_on_tuning_files COMMAND process_tuning --gtest_filter=*whatever_ranks*)
set_tests_properties(soak_agreement_on_tuning_files PROPERTIES LABELS soak TIMEOUT 1200 RUN_SERIAL ON
  ENVIRONMENT TUNING_RUNS=500 FAIL_REGULAR_EXPRESSION " 0 tests from 0 test suites ran")
# Where a rank sleeps.
target_link_libraries(process_wait PRIVATE tutti_runtime tutti_plan tutti_engine tutti_verbs tutti_shm
  tutti_bootstrap ${CMAKE_DL_LIBS})
# Whom a context has connected.
foreach(name cancel chaos connections failures nodes shrink)
  target_link_libraries(process_${name} PRIVATE tutti_runtime tutti_plan tutti_engine tutti_verbs
    tutti_shm tutti_bootstrap)
endforeach()
target_link_libraries(process_devices PRIVATE tutti_verbs)  # what ranks tell of their ports

target_sources(process_collectives PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/allocations.cpp)

# What set-up costs: bytes, memory and queue pairs, which sanitizers add to.
if(NOT TUTTI_SANITIZE)
  add_executable(set_up_figures set_up_figures.cpp)
  target_link_libraries(set_up_figures PRIVATE tutti tutti_runtime tutti_plan tutti_engine tutti_verbs
    tutti_shm tutti_bootstrap)
  target_include_directories(set_up_figures PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  set_target_properties(set_up_figures PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  foreach(run tree:16 star:8 star:32 all:16)
    string(REPLACE ":" ";" parts ${run})
    list(POP_FRONT parts what ranks)
    add_test(NAME process_set_up_${what}_${ranks} COMMAND set_up_figures ${ranks} ${what})
    set_tests_properties(process_set_up_${what}_${ranks} PROPERTIES LABELS process TIMEOUT 300
      RUN_SERIAL ON)
  endforeach()
endif()

# Many calls: no mismatch, no growth.  The long form is for `scripts/test.sh --all`.
add_executable(soak soak.cpp)
add_dependencies(thread_test_programs dot_product matrix_factorization)
target_link_libraries(soak PRIVATE tutti tutti_runtime tutti_plan tutti_engine tutti_verbs tutti_shm
  tutti_bootstrap)
target_include_directories(soak PRIVATE ${PROJECT_SOURCE_DIR}/tests)
set_target_properties(soak PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
set(calls 10000)
if(TUTTI_SANITIZE)
  set(calls 2000)
endif()
foreach(ranks 2 3 4 8)
  add_test(NAME process_soak_${ranks} COMMAND soak ${ranks} ${calls})
  tutti_process_test(process_soak_${ranks} soak)
  set_tests_properties(process_soak_${ranks} PROPERTIES ENVIRONMENT TUTTI_RANKS_PER_NODE=1)
  add_test(NAME long_soak_${ranks} COMMAND soak ${ranks} 200000)
  set_tests_properties(long_soak_${ranks} PROPERTIES LABELS long TIMEOUT 900 RUN_SERIAL ON
    ENVIRONMENT TUTTI_RANKS_PER_NODE=1)
endforeach()
# A million broadcasts to a rank that sleeps now and then; the ranks are nodes of their own, or one.
foreach(run nodes:2:1 flags:2:1 node:3:3)
  string(REPLACE ":" ";" parts ${run})
  list(POP_FRONT parts name ranks ranks_per_node)
  set(environment TUTTI_RANKS_PER_NODE=${ranks_per_node})
  if(name STREQUAL flags)
    list(APPEND environment TUTTI_NOTIFY=flag)
  endif()
  add_test(NAME long_sleeping_leaf_${name} COMMAND soak ${ranks} 1000000 broadcast)
  set_tests_properties(long_sleeping_leaf_${name} PROPERTIES LABELS long TIMEOUT 300 RUN_SERIAL ON
    ENVIRONMENT "${environment}")
endforeach()
add_test(NAME process_soak_flags COMMAND soak 3 ${calls})
tutti_process_test(process_soak_flags soak)
set_tests_properties(process_soak_flags PROPERTIES
  ENVIRONMENT "TUTTI_RANKS_PER_NODE=1;TUTTI_NOTIFY=flag")
# Every collective on three communicators, whose ranks are nodes of two.
add_test(NAME process_soak_every COMMAND soak 4 4 every)
tutti_process_test(process_soak_every soak)
add_test(NAME soak_every COMMAND soak 4 600 every)
set_tests_properties(soak_every PROPERTIES LABELS soak TIMEOUT 900 RUN_SERIAL ON)
set_tests_properties(process_soak_every soak_every PROPERTIES ENVIRONMENT TUTTI_RANKS_PER_NODE=2)
set(none_ran " 0 tests from 0 test suites ran")  # a filter that fits no name would pass
# A hundred kills for each bootstrap, and as many again where ranks share nodes.
foreach(run "long:local" "long:tcp" "soak:mute" "soak:local_nodes" "soak:tcp_nodes" "soak:mute_nodes")
  string(REPLACE ":" ";" parts ${run})
  list(POP_FRONT parts label scenery)
  add_test(NAME ${label}_kill_${scenery} COMMAND process_failures --kills=100
    --gtest_filter=Bootstrap/Kill.*/${scenery})
  set_tests_properties(${label}_kill_${scenery} PROPERTIES LABELS ${label} TIMEOUT 900
    RUN_SERIAL ON FAIL_REGULAR_EXPRESSION ${none_ran})
endforeach()

add_test(NAME soak_shrink COMMAND process_shrink --gtest_filter=ShrinkChaos.* --runs=500 --seed=1000)
set_tests_properties(soak_shrink PROPERTIES LABELS soak TIMEOUT 1800 RUN_SERIAL ON)
add_test(NAME soak_cancel COMMAND process_cancel --gtest_filter=Cancel.gives_up* --runs=200 --seed=1000)
set_tests_properties(soak_cancel PROPERTIES LABELS soak TIMEOUT 1800 RUN_SERIAL ON
  FAIL_REGULAR_EXPRESSION " 0 tests from 0 test suites ran")
# Two thousand runs, four at a time: their ranks mostly wait.  CI has a minute of others.
add_test(NAME long_chaos COMMAND process_chaos --runs=170 --seed=3000 --jobs=4)
set_tests_properties(long_chaos PROPERTIES LABELS long TIMEOUT 600 RUN_SERIAL ON)
add_test(NAME soak_chaos COMMAND process_chaos --runs=2000 --seed=1000 --jobs=4)
set_tests_properties(soak_chaos PROPERTIES LABELS soak TIMEOUT 7200 RUN_SERIAL ON)

# System calls of the steady state, counted by strace; those of the sanitizers are not ours.
add_executable(steady_state steady_state.cpp)
target_link_libraries(steady_state PRIVATE tutti)
set_target_properties(steady_state PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
if(NOT TUTTI_SANITIZE)
  add_test(NAME process_system_calls
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/system_calls.sh $<TARGET_FILE:steady_state>)
  set_tests_properties(process_system_calls PROPERTIES LABELS process TIMEOUT 300 RUN_SERIAL ON
    SKIP_RETURN_CODE 77 ENVIRONMENT TUTTI_RANKS_PER_NODE=1)
  add_test(NAME process_system_calls_flags
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/system_calls.sh $<TARGET_FILE:steady_state>)
  set_tests_properties(process_system_calls_flags PROPERTIES LABELS process TIMEOUT 300
    RUN_SERIAL ON SKIP_RETURN_CODE 77 ENVIRONMENT "TUTTI_RANKS_PER_NODE=1;TUTTI_NOTIFY=flag")
  add_test(NAME process_system_calls_node
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/system_calls.sh $<TARGET_FILE:steady_state>)
  set_tests_properties(process_system_calls_node PROPERTIES LABELS process TIMEOUT 300
    RUN_SERIAL ON SKIP_RETURN_CODE 77)
endif()

# Instructions of small calls, counted by callgrind.
find_path(TUTTI_VALGRIND_INCLUDE valgrind/callgrind.h)
if(TUTTI_VALGRIND_INCLUDE AND CMAKE_BUILD_TYPE STREQUAL Release AND
   CMAKE_CXX_COMPILER_ID STREQUAL GNU AND NOT TUTTI_SANITIZE)
  add_executable(instructions instructions.cpp)
  target_link_libraries(instructions PRIVATE tutti)
  target_include_directories(instructions SYSTEM PRIVATE ${TUTTI_VALGRIND_INCLUDE})
  set_target_properties(instructions PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME process_instructions
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/instructions.sh $<TARGET_FILE:instructions>
      ${PROJECT_SOURCE_DIR}/tests/data/instructions.csv)
  set_tests_properties(process_instructions PROPERTIES LABELS process TIMEOUT 500
    SKIP_RETURN_CODE 77)
endif()

foreach(example dot_product dot_product_c)
  add_test(NAME process_example_${example}
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/example.sh $<TARGET_FILE:${example}>)
  set_tests_properties(process_example_${example} PROPERTIES LABELS process TIMEOUT 60)
endforeach()

add_test(NAME process_example_exact_sum
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/exact_sum.sh $<TARGET_FILE:exact_sum>)
set_tests_properties(process_example_exact_sum PROPERTIES LABELS process TIMEOUT 60)

tutti_test(process_virtual_time LABEL process TIMEOUT 300 ARGUMENTS --gtest_filter=VirtualTime.*
  SOURCES virtual_time_test.cpp ${PROJECT_SOURCE_DIR}/tests/support/event_simulation.cpp
  LINK tutti tutti_runtime tutti_plan tutti_engine tutti_verbs tutti_shm tutti_bootstrap)
target_include_directories(process_virtual_time PRIVATE ${PROJECT_SOURCE_DIR}/tests)
tutti_test(process_node_time LABEL process TIMEOUT 480 ARGUMENTS --gtest_filter=NodeTime.*
  SOURCES node_time_test.cpp
  LINK tutti tutti_runtime tutti_tune tutti_plan tutti_engine tutti_verbs tutti_shm tutti_bootstrap)
target_include_directories(process_node_time PRIVATE ${PROJECT_SOURCE_DIR}/tests)
tutti_test(process_shared_ports LABEL process TIMEOUT 120 SOURCES shared_ports_test.cpp
  LINK tutti tutti_verbs tutti_bootstrap)
target_include_directories(process_shared_ports PRIVATE ${PROJECT_SOURCE_DIR}/tests)
# Their clock is virtual, so that they may run beside others.
set_tests_properties(process_virtual_time process_node_time PROPERTIES LABELS "process;virtual")
add_test(NAME long_node_time COMMAND process_node_time --gtest_filter=LongNodeTime.*)
set_tests_properties(long_node_time PROPERTIES LABELS "long;beside" TIMEOUT 600
  FAIL_REGULAR_EXPRESSION ${none_ran})
add_test(NAME soak_death_in_virtual_time COMMAND process_virtual_time
  --gtest_filter=DeathInVirtualTime.*)
set_tests_properties(soak_death_in_virtual_time PROPERTIES LABELS soak TIMEOUT 300
  FAIL_REGULAR_EXPRESSION ${none_ran})

add_test(NAME soak_many_partners COMMAND process_virtual_time --gtest_filter=ManyPartners.*)
set_tests_properties(soak_many_partners PROPERTIES LABELS soak TIMEOUT 600 RUN_SERIAL ON
  FAIL_REGULAR_EXPRESSION ${none_ran})

add_test(NAME process_matrix_factorization
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/matrix_factorization.sh $<TARGET_FILE:matrix_factorization>
    ${PROJECT_SOURCE_DIR}/examples/matrix_factorization.py)
set_tests_properties(process_matrix_factorization PROPERTIES LABELS process TIMEOUT 120
  RUN_SERIAL ON)

# The solver.  What it refuses depends on no clock.  It is built of processes, across which ThreadSanitizer
# cannot look.
if(NOT TUTTI_SANITIZE MATCHES thread)
  set(poisson ${CMAKE_CURRENT_SOURCE_DIR}/poisson.sh $<TARGET_FILE:poisson>)
  add_test(NAME process_example_poisson COMMAND ${poisson} solves
    ${PROJECT_SOURCE_DIR}/examples/poisson/residuals.py)
  set_tests_properties(process_example_poisson PROPERTIES LABELS process TIMEOUT 120 PROCESSORS 2)
  add_test(NAME process_example_poisson_refusals COMMAND ${poisson} refusals)
  set_tests_properties(process_example_poisson_refusals PROPERTIES LABELS "process;beside" TIMEOUT 60)
  add_test(NAME soak_example_poisson_96 COMMAND ${poisson} ranks 96)
  set_tests_properties(soak_example_poisson_96 PROPERTIES LABELS soak TIMEOUT 300 RUN_SERIAL ON)
endif()

# A C program; as nodes of their own, too.
add_executable(c_interface c_interface.c)
target_link_libraries(c_interface PRIVATE tutti)
set_target_properties(c_interface PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_dependencies(thread_test_programs c_interface dot_product_c)
add_test(NAME process_c_interface COMMAND c_interface)
add_test(NAME process_c_interface_nodes COMMAND c_interface)
set_tests_properties(process_c_interface process_c_interface_nodes PROPERTIES LABELS process
  TIMEOUT 120 RUN_SERIAL ON)
set_tests_properties(process_c_interface_nodes PROPERTIES ENVIRONMENT TUTTI_RANKS_PER_NODE=1)
