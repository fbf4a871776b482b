# What the library of an exchange is made of (mpi.cmake, pmix.cmake): beside libtutti, shared and
# static, because what it links is not for every program.

# tutti_package_exchange(NAME name COMPONENT component FUNCTION function VERSION word OBJECTS target
#   LIBRARIES library... [DEFINITIONS definition...]): libtutti_NAME of the objects of a target, which
# exports tutti::FUNCTION and tutti_FUNCTION in the version TUTTI_VERSION_0.2 and the like.
function(tutti_package_exchange)
  cmake_parse_arguments(PART "" "NAME;COMPONENT;FUNCTION;VERSION;OBJECTS" "LIBRARIES;DEFINITIONS" ${ARGN})
  set(library tutti_${PART_NAME})
  set(exports ${CMAKE_CURRENT_BINARY_DIR}/${library}_exports.map)
  configure_file(exchange_exports.map.in ${exports} @ONLY)
  add_library(${library}_archive STATIC $<TARGET_OBJECTS:${PART_OBJECTS}>)
  add_library(${library}_shared SHARED $<TARGET_OBJECTS:${PART_OBJECTS}>)
  foreach(kind archive shared)
    set_target_properties(${library}_${kind} PROPERTIES OUTPUT_NAME ${library}
      LINKER_LANGUAGE CXX EXPORT_NAME ${PART_NAME}_${kind}
      ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}
      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
    target_link_libraries(${library}_${kind} INTERFACE $<INSTALL_INTERFACE:tutti::${kind}>)
    target_compile_definitions(${library}_${kind} INTERFACE ${PART_DEFINITIONS})
  endforeach()
  target_link_options(${library}_archive INTERFACE
    $<INSTALL_INTERFACE:LINKER:--exclude-libs,lib${library}.a>)
  set_target_properties(${library}_shared PROPERTIES VERSION ${PROJECT_VERSION}
    SOVERSION ${tutti_soversion} LINK_DEPENDS ${exports} SKIP_BUILD_RPATH ON)
  # What it needs of tutti, most of which libtutti does not export, is in it and cannot be seen.
  target_link_libraries(${library}_shared PRIVATE $<TARGET_FILE:tutti_bootstrap> ${PART_LIBRARIES}
    Threads::Threads)
  add_dependencies(${library}_shared tutti_bootstrap)
  target_link_options(${library}_shared PRIVATE -Wl,-z,defs -Wl,--version-script=${exports})

  install(TARGETS ${library}_shared ${library}_archive EXPORT ${library}
    LIBRARY COMPONENT ${PART_COMPONENT} ARCHIVE COMPONENT ${PART_COMPONENT})
  install(EXPORT ${library} NAMESPACE tutti:: FILE tutti-${PART_COMPONENT}.cmake
    DESTINATION ${package_folder} COMPONENT ${PART_COMPONENT})
endfunction()
