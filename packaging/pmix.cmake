# libtutti_pmix, shared and static, where the build has found PMIx.
if(NOT TARGET tutti_pmix)
  return()
endif()
tutti_package_exchange(NAME pmix COMPONENT pmix VERSION PMIX FUNCTION pmix_exchange OBJECTS tutti_pmix
  LIBRARIES ${PMIX_LINK_LIBRARIES})
install(FILES ${PROJECT_SOURCE_DIR}/bootstrap/pmix_exchange.h ${PROJECT_SOURCE_DIR}/bootstrap/pmix_exchange.hpp
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tutti COMPONENT pmix)
list(TRANSFORM PMIX_LIBRARY_DIRS PREPEND -L OUTPUT_VARIABLE pc_pmix)
foreach(library IN LISTS PMIX_LIBRARIES)
  list(APPEND pc_pmix -l${library})
endforeach()
list(JOIN pc_pmix " " pc_pmix)
configure_file(tutti-pmix.pc.in tutti-pmix.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tutti-pmix.pc DESTINATION ${pc_folder} COMPONENT pmix)
