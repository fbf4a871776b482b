# What qemu-user does not emulate, and the tests that need it.  The rest of their programs runs.
#   execve   of a program of the other architecture, by which a death test starts itself again; the
#            kernel refuses it unless it was told of the emulator (binfmt_misc)
#   memory   /proc/self/status also counts that of the emulator
#   clone3   and so set_tid, by which a child gets the id of a dead process
#   time     the probe of copying takes too long when copies are translated code
function(tutti_leave_out_under_emulation test filter)
  set_tests_properties(${test} PROPERTIES ENVIRONMENT "GTEST_FILTER=-${filter}")
endfunction()
tutti_leave_out_under_emulation(verbs_fabric LinesDeathTest.*)  # execve
tutti_leave_out_under_emulation(verbs_connections Connections.memory_of_one_is_bounded)  # memory
tutti_leave_out_under_emulation(shm_copy_costs CopyCosts.two_ranks_get_figures)  # time
set_tests_properties(shm_peer_memory PROPERTIES DISABLED ON)  # clone3, in all of its tests
