# The package for Python (bindings/python), with the interpreter that it is built for.
if(NOT TARGET tutti_python)
  return()
endif()
foreach(name collectives exchanges)
  add_test(NAME process_python_${name}
    COMMAND ${TUTTI_PYTHON_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/python/${name}.py)
  set_tests_properties(process_python_${name} PROPERTIES LABELS process TIMEOUT 120
    SKIP_RETURN_CODE 77
    ENVIRONMENT "PYTHONPATH=${CMAKE_BINARY_DIR}/python;PYTHONDONTWRITEBYTECODE=1")
endforeach()
