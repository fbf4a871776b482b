# The package for Python: in the folder that an interpreter looks into whose prefix is that of the
# installation, such as a virtual environment; else PYTHONPATH has to name it.  Debian's interpreter
# has another one for packages of the system.
if(NOT TARGET tutti_python)
  return()
endif()
execute_process(COMMAND ${TUTTI_PYTHON_EXECUTABLE} -c "import sysconfig
folder = lambda scheme: sysconfig.get_path('platlib', scheme, vars={'base': '', 'platbase': ''}).lstrip('/')
print(sysconfig.get_python_version(), folder('posix_prefix'), sep=';', end='')
if 'deb_system' in sysconfig.get_scheme_names(): print('', folder('deb_system'), sep=';', end='')"
  OUTPUT_VARIABLE python COMMAND_ERROR_IS_FATAL ANY)
list(GET python 0 python_version)
list(GET python 1 python_folder)
if(TUTTI_INSTALL_PYTHON)
  set(python_folder ${TUTTI_INSTALL_PYTHON})
endif()
configure_file(METADATA.in METADATA @ONLY)

# tutti_install_python(FOLDER COMPONENT [EXCLUDE_FROM_ALL])
function(tutti_install_python folder component)
  install(TARGETS tutti_python LIBRARY DESTINATION ${folder}/tutti COMPONENT ${component} ${ARGN})
  install(FILES ${PROJECT_SOURCE_DIR}/bindings/python/tutti/__init__.py
    DESTINATION ${folder}/tutti COMPONENT ${component} ${ARGN})
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/METADATA ${PROJECT_SOURCE_DIR}/LICENSE
    DESTINATION ${folder}/tutti-${PROJECT_VERSION}.dist-info COMPONENT ${component} ${ARGN})
endfunction()
tutti_install_python(${python_folder} python)
list(LENGTH python length)
if(length EQUAL 3)
  list(GET python 2 python_folder_debian)
  tutti_install_python(${python_folder_debian} python-debian EXCLUDE_FROM_ALL)
endif()
