add_executable(mpi_exchange_test mpi_exchange_test.cpp)
target_link_libraries(mpi_exchange_test PRIVATE tutti_mpi GTest::gtest)
set_target_properties(mpi_exchange_test PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
foreach(ranks 1 2 4)
  tutti_mpi_test(mpi_exchange_test_${ranks} ${ranks} mpi_exchange_test)
endforeach()

add_executable(mpi_split_test mpi_split_test.cpp)
target_link_libraries(mpi_split_test PRIVATE tutti tutti_mpi GTest::gtest)
set_target_properties(mpi_split_test PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
foreach(ranks 1 2 4 5)
  tutti_mpi_test(mpi_split_test_${ranks} ${ranks} mpi_split_test)
endforeach()
