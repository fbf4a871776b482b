# Debian packages by CPack: `cpack --config build/release/CPackConfig.cmake`, in an empty folder.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tutti)
set(CPACK_PACKAGE_VENDOR tutti)
set(CPACK_PACKAGE_CONTACT "tutti maintainers <tutti@invalid>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE gzip)  # a fifth of the time of xz
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# A package asks for the libtutti0 of its own version: before 1.0, another one is another interface.
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY "=")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_CURRENT_BINARY_DIR})

set(CPACK_COMPONENTS_ALL)
# tutti_package(COMPONENT NAME SECTION DEPENDS SUMMARY TEXT)
macro(tutti_package component name section depends summary text)
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${depends}")
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${summary}\n${text}")
  # Where Debian looks for the license; in a prefix, doc/tutti has it.
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name}
    RENAME copyright COMPONENT ${component} EXCLUDE_FROM_ALL)
endmacro()
set(same "(= ${PROJECT_VERSION})")
tutti_package(core libtutti0 libs ""
  "Collectives with the latency of the wire: library"
  "Persistent collective operations straight on libibverbs, and through shared memory between the ranks of a host.")
# What programs are linked with if they take the archive.
tutti_package(core-dev libtutti-dev libdevel 
  "libtutti0 ${same}, libibverbs-dev, librdmacm-dev, libstdc++-12-dev | libstdc++-dev"
  "Collectives with the latency of the wire: headers and archive"
  "Headers for C++20 and C11, the archive, and what CMake and pkg-config ask for.")
if(TUTTI_BENCHMARKS)
  tutti_package(tools tutti-tools net ""
    "Collectives with the latency of the wire: programs"
    "tutti-bench measures, tutti-tune makes the library choose by what was measured, tutti-info says what it found.")
endif()
if(TARGET tutti_softverbs)
  tutti_package(soft tutti-softverbs net "libibverbs1, libc6"
    "Software device for programs that use libibverbs"
    "Queue pairs between the processes of this host, without an adapter and without privileges.")
endif()
# It names the library in whose place it is by its path, which dpkg-shlibdeps does not know.
set(CPACK_DEBIAN_SOFT_PACKAGE_SHLIBDEPS OFF)
if(tutti_packaged_mpis)
  tutti_package(mpirun tutti-mpirun net ""
    "Collectives with the latency of the wire: for programs of MPI as they are"
    "tutti-mpirun runs mpirun so that its ranks do their collectives by tutti, of Open MPI or of MPICH.")
  list(TRANSFORM tutti_packaged_mpis PREPEND "tutti-mpi-" OUTPUT_VARIABLE suggested)
  list(JOIN suggested " | " CPACK_DEBIAN_MPIRUN_PACKAGE_SUGGESTS)
endif()
foreach(name IN LISTS tutti_packaged_mpis)
  tutti_package(mpi-${name} tutti-mpi-${name} libs "libtutti0 ${same}, tutti-mpirun ${same}"
    "Collectives with the latency of the wire: on the ranks of ${name}"
    "The library by which the ranks that mpirun has started find each other, and the one that tutti-mpirun loads.")
  string(TOUPPER mpi-${name} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SUGGESTS libtutti-dev)
endforeach()
if(TARGET tutti_pmix)
  tutti_package(pmix tutti-pmix libs "libtutti0 ${same}"
    "Collectives with the latency of the wire: on the ranks of PMIx"
    "The library by which ranks find each other that a launcher with a PMIx server has started, without MPI.")
  set(CPACK_DEBIAN_PMIX_PACKAGE_SUGGESTS "libtutti-dev, libpmix-dev")  # the latter for the archive
endif()
# An archive and modules: only what is compiled against it needs it, and its compiler has to read them.
if(TARGET tutti_fortran)
  set(compiler ${fortran_modules})
  if(CMAKE_Fortran_COMPILER_ID STREQUAL GNU)
    string(REGEX MATCH "^[0-9]+" major ${CMAKE_Fortran_COMPILER_VERSION})
    set(compiler "gfortran-${major} | ${fortran_modules}")
  endif()
  tutti_package(fortran libtutti-fortran-dev libdevel "libtutti-dev ${same}, ${compiler}"
    "Collectives with the latency of the wire: module for Fortran"
    "The module tutti for Fortran 2018, for arrays of any type and rank.")
endif()
if(TARGET tutti_python AND python_folder_debian)
  # Extensions are for one version of Python, with a minor number.
  string(REGEX MATCH "[0-9]+$" python_next ${python_version})
  math(EXPR python_next "${python_next} + 1")
  tutti_package(python-debian python3-tutti python
    "python3 (>= ${python_version}~), python3 (<< 3.${python_next}), python3-numpy"
    "Collectives with the latency of the wire: for Python"
    "The package tutti, for NumPy arrays and communicators of mpi4py.  It has its own copy of the library.")
  set(CPACK_DEBIAN_PYTHON-DEBIAN_PACKAGE_SUGGESTS python3-mpi4py)
  set(CPACK_DEBIAN_PYTHON-DEBIAN_PACKAGE_CONTROL_EXTRA
    ${CMAKE_CURRENT_SOURCE_DIR}/python3/postinst ${CMAKE_CURRENT_SOURCE_DIR}/python3/prerm)
endif()
set(CPACK_DEBIAN_CORE_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_SOURCE_DIR}/triggers)
include(CPack)
