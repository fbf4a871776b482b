# tutti_fortran_modules(RESULT COMPILER_ID VERSION): the folder for the modules (.mod) of a compiler,
# whose format no other compiler reads: as Debian names it for GNU, where it changes seldom; for others
# their name and major version.  Also installed, for find_package(tutti).
function(tutti_fortran_modules result id version)
  string(REGEX MATCH "^[0-9]+" major "${version}")
  string(TOLOWER "${id}-${major}" name)
  if(id STREQUAL GNU)
    set(name gfortran-mod-15)  # of GCC 8 and later
    if(major GREATER_EQUAL 15)
      set(name gfortran-mod-16)
    endif()
  endif()
  set(${result} ${name} PARENT_SCOPE)
endfunction()
