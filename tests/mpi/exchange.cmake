add_executable(mpi_exchange_test mpi_exchange_test.cpp)
target_link_libraries(mpi_exchange_test PRIVATE tutti_mpi GTest::gtest)
target_include_directories(mpi_exchange_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
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

add_executable(mpi_c_exchange c_exchange.c)
target_link_libraries(mpi_c_exchange PRIVATE tutti tutti_mpi)
set_target_properties(mpi_c_exchange PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
foreach(ranks 1 3)
  tutti_mpi_test(mpi_c_exchange_${ranks} ${ranks} mpi_c_exchange)
endforeach()
