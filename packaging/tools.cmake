# The software device for programs that know nothing of tutti, the programs that measure and
# describe, and man pages of all programs.  microbench installs its own programs.
if(TARGET tutti_softverbs)
  set(softverbs_folder ${CMAKE_INSTALL_LIBDIR}/tutti/softverbs)
  set(softverbs_script ${CMAKE_CURRENT_BINARY_DIR}/tutti-softverbs)
  string(REGEX REPLACE "[^/]+" ".." bin_up ${CMAKE_INSTALL_BINDIR})
  configure_file(tutti-softverbs.in ${softverbs_script} @ONLY)
  install(PROGRAMS ${softverbs_script} TYPE BIN COMPONENT soft)
  install(TARGETS tutti_softverbs LIBRARY DESTINATION ${softverbs_folder} COMPONENT soft)
  install(TARGETS tutti_softverbs_shim LIBRARY DESTINATION ${softverbs_folder} COMPONENT soft)
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/tutti-soft.cmake @ONLY CONTENT
"if(NOT TARGET tutti::softverbs)
  add_executable(tutti::softverbs IMPORTED)
  set_target_properties(tutti::softverbs PROPERTIES
    IMPORTED_LOCATION \${_tutti_prefix}/@CMAKE_INSTALL_BINDIR@/tutti-softverbs)
endif()
")
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tutti-soft.cmake DESTINATION ${package_folder}
    COMPONENT soft)
endif()
if(TUTTI_BENCHMARKS)
  install(EXPORT tutti_tools NAMESPACE tutti:: FILE tutti-tools.cmake DESTINATION ${package_folder}
    COMPONENT tools)
endif()

# Man pages, from what the programs say of themselves.
find_package(Python3 COMPONENTS Interpreter)
if(NOT Python3_Interpreter_FOUND OR (CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR))
  message(STATUS "No man pages: they need Python, and programs that run here")
  return()
endif()
set(man_maker ${CMAKE_CURRENT_SOURCE_DIR}/man_page.py)
set(man_pages)
# tutti_man_page(NAME COMPONENT COMMAND DEPENDS subcommands...)
function(tutti_man_page name component command depends)
  set(page ${CMAKE_CURRENT_BINARY_DIR}/${name}.1)
  add_custom_command(OUTPUT ${page} DEPENDS ${depends} ${man_maker} VERBATIM
    COMMAND ${Python3_EXECUTABLE} ${man_maker} ${command} ${name} ${PROJECT_VERSION} ${ARGN}
    > ${page})
  set(man_pages ${man_pages} ${page} PARENT_SCOPE)
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${component})
endfunction()
if(TUTTI_BENCHMARKS)
  tutti_man_page(tutti-info tools $<TARGET_FILE:tutti-info> tutti-info)
  tutti_man_page(tutti-tune tools $<TARGET_FILE:tutti-tune> tutti-tune)
  tutti_man_page(tutti-bench tools $<TARGET_FILE:tutti-bench> tutti-bench summary wake curves)
endif()
if(softverbs_script)
  tutti_man_page(tutti-softverbs soft ${softverbs_script} ${softverbs_script})
endif()
if(mpirun_script)
  tutti_man_page(tutti-mpirun mpirun ${mpirun_script} ${mpirun_script})
endif()
add_custom_target(tutti_man_pages ALL DEPENDS ${man_pages})
