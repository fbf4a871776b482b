foreach(name local tcp)
  tutti_test(bootstrap_${name}_process_test LABEL process SERIAL SOURCES bootstrap_${name}.cpp
    LINK tutti_bootstrap)
  # Ports and waits are the same as in the unit tests of this layer.
  target_include_directories(bootstrap_${name}_process_test PRIVATE
    ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/tests/unit/bootstrap)
endforeach()
if(TARGET tutti-bench)
  foreach(group missing stranger secrets)
    add_test(NAME bootstrap_rendezvous_${group}
      COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/bootstrap_rendezvous.sh $<TARGET_FILE:tutti-bench> ${group})
    set_tests_properties(bootstrap_rendezvous_${group} PROPERTIES LABELS process TIMEOUT 120
      PROCESSORS 2)
  endforeach()
endif()
# What strangers cost a job's start; printed, not judged.
if(NOT TUTTI_SANITIZE)
  add_executable(start_among_strangers start_among_strangers.cpp)
  target_link_libraries(start_among_strangers PRIVATE tutti)
  target_include_directories(start_among_strangers PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  set_target_properties(start_among_strangers PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME bootstrap_start_among_strangers COMMAND start_among_strangers 3)
  set_tests_properties(bootstrap_start_among_strangers PROPERTIES LABELS process TIMEOUT 120
    PROCESSORS 2)
endif()
