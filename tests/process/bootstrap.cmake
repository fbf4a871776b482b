foreach(name local tcp)
  tutti_test(bootstrap_${name}_process_test LABEL process SOURCES bootstrap_${name}.cpp
    LINK tutti_bootstrap)
  # Ports and waits are the same as in the unit tests of this layer.
  target_include_directories(bootstrap_${name}_process_test PRIVATE
    ${PROJECT_SOURCE_DIR}/tests/unit/bootstrap)
endforeach()
