if(TARGET tutti-bench)
  foreach(group results virtual_time refusals bounds tcp verbs)
    add_test(NAME bench_${group} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/bench_cli.sh
      $<TARGET_FILE:tutti-bench> $<TARGET_FILE:tutti-info> ${group})
    set_tests_properties(bench_${group} PROPERTIES LABELS process TIMEOUT 300 PROCESSORS 2)
  endforeach()
  set_tests_properties(bench_virtual_time PROPERTIES LABELS "process;virtual" PROCESSORS 1)
  foreach(run bench:24:1 soak:512:18)  # 24 ranks show that the test itself works
    string(REPLACE ":" ";" parts ${run})
    list(POP_FRONT parts label ranks gibibytes)
    add_test(NAME ${label}_all_pairs COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/all_pairs.sh
      $<TARGET_FILE:tutti-bench> ${ranks} ${gibibytes})
    set_tests_properties(${label}_all_pairs PROPERTIES SKIP_RETURN_CODE 77)
  endforeach()
  set_tests_properties(bench_all_pairs PROPERTIES LABELS "process;virtual" TIMEOUT 120)
  set_tests_properties(soak_all_pairs PROPERTIES LABELS soak TIMEOUT 1800 RUN_SERIAL ON)
  set_tests_properties(bench_refusals PROPERTIES LABELS "process;beside" PROCESSORS 1)

  foreach(group refusals resume interrupt lock modes budget stress tcp)
    add_test(NAME tune_${group} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tune_cli.sh
      $<TARGET_FILE:tutti-tune> $<TARGET_FILE:tutti-bench> ${group})
    set_tests_properties(tune_${group} PROPERTIES LABELS process TIMEOUT 300 PROCESSORS 2)
  endforeach()
  foreach(group refusals resume interrupt lock modes)
    set_tests_properties(tune_${group} PROPERTIES LABELS "process;beside" PROCESSORS 1)
  endforeach()

  # Times are those of optimised code: with a sanitizer, reading 4,000 findings takes seconds.
  if(TUTTI_SANITIZE)
    set_tests_properties(tune_budget PROPERTIES DISABLED ON)
  endif()

  add_test(NAME soak_tune_resume COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tune_cli.sh
    $<TARGET_FILE:tutti-tune> $<TARGET_FILE:tutti-bench> resume 50)
  set_tests_properties(soak_tune_resume PROPERTIES LABELS soak TIMEOUT 1200 PROCESSORS 2)

  foreach(run process:ranks process:shapes soak:scale soak:sizes)
    string(REPLACE ":" ";" parts ${run})
    list(POP_FRONT parts label group)
    add_test(NAME ${label}_every_collective_${group}
      COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/every_collective.sh $<TARGET_FILE:tutti-bench> ${group})
    set_tests_properties(${label}_every_collective_${group} PROPERTIES LABELS ${label} TIMEOUT 900
      RUN_SERIAL ON)
  endforeach()

  tutti_test(process_network_probes LABEL process TIMEOUT 120 SERIAL
    SOURCES network_probes_test.cpp
    LINK tutti_bench tutti_tune tutti_plan tutti_verbs tutti_bootstrap)
  target_include_directories(process_network_probes PRIVATE ${PROJECT_SOURCE_DIR}/tests)

  tutti_test(process_device_stress LABEL process SOURCES device_stress_test.cpp
    LINK tutti_bench tutti_tune tutti_verbs tutti_bootstrap)
  target_include_directories(process_device_stress PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  set_tests_properties(process_device_stress PROPERTIES PROCESSORS 2)

  find_package(Python3 COMPONENTS Interpreter REQUIRED)
  foreach(group json tampered texts refusals)
    add_test(NAME plan_${group} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/plan_cli.sh
      $<TARGET_FILE:tutti-info> ${PROJECT_SOURCE_DIR}/tests/support/check_plans.py ${group})
    set_tests_properties(plan_${group} PROPERTIES LABELS "process;virtual" TIMEOUT 300)
  endforeach()
  if(NOT TUTTI_SANITIZE MATCHES thread)  # it has no threads
    add_test(NAME process_attach COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/attach.sh
      $<TARGET_FILE:tutti-info> $<TARGET_FILE:tutti-bench>)
    set_tests_properties(process_attach PROPERTIES LABELS process TIMEOUT 60 RUN_SERIAL ON)
  endif()
endif()
