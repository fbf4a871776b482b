#!/usr/bin/env bash
# Promise: with what `cmake --install` puts into a prefix, which then is moved, find_package(tutti) serves a
# project in C and C++, whose examples run, one at C++17, one in C alone and one in Fortran alone; what it
# cannot find it names.  Python imports the package, ranks of PMIx need no MPI, and shared libraries export
# public names only.
# installed.sh CMAKE BUILD SOURCE CC CXX FORTRAN|none PYTHON|none VERSION MPICC|none [MPIRUN...]
set -eu
cmake=$1 build=$2 source=$3 c=$4 cxx=$5 fortran=$6 python=$7 version=$8 mpicc=$9
shift 9
[ "$mpicc" != none ] || mpicc=
# In the same place each time, so that the compiler's cache knows what it has compiled before.
scratch=$build/packages_installed
rm -rf "$scratch"
mkdir "$scratch"
export CCACHE_BASEDIR=$source CCACHE_NOHASHDIR=1
trap 'rm -rf "$scratch"' EXIT
command -v ninja >/dev/null || { echo "skipped: ninja is not installed"; exit 77; }
fail() {
  echo "FAILED: $*"
  exit 1
}
# quietly COMMAND...: what it prints is shown if it fails.
quietly() {
  "$@" >"$scratch/log" 2>&1 || { cat "$scratch/log"; fail "$*"; }
}
quietly "$cmake" --install "$build" --prefix "$scratch/first"
prefix=$scratch/prefix
mv "$scratch/first" "$prefix"
for component in core core-dev; do
  quietly "$cmake" --install "$build" --prefix "$scratch/bare" --component $component
done
if grep -rlF -e "$build" -e "$source" "$prefix"/lib*/cmake; then fail "these name folders of the build"; fi

# refused WHAT TEXT PREFIX ARGUMENT...: find_package with these arguments says TEXT.
refused() {
  local what=$1 text=$2 where=$3
  shift 3
  rm -rf "$scratch/refused"
  mkdir "$scratch/refused"
  printf 'cmake_minimum_required(VERSION 3.25)\nproject(refused NONE)\nfind_package(tutti %s)\n' "$*" \
    >"$scratch/refused/CMakeLists.txt"
  if "$cmake" -S "$scratch/refused" -B "$scratch/refused/build" -D CMAKE_PREFIX_PATH="$where" \
    >"$scratch/log" 2>&1; then fail "$what: not refused"; fi
  # CMake breaks lines as it likes.
  tr -s ' \n' ' ' <"$scratch/log" | grep -qF "$text" || { cat "$scratch/log"; fail "$what: no \"$text\""; }
}
# Man pages have every option that --help has.
for program in tutti-bench tutti-info tutti-tune; do
  page=$(sed 's/\\-/-/g' "$prefix/share/man/man1/$program.1")
  options=$("$prefix/bin/$program" --help | grep -oE '^ +(-h,)?--[a-z-]+' | grep -oE -- '--[a-z-]+')
  [ "$(wc -w <<<"$options")" -ge 2 ] || fail "$program --help has no options"
  for option in $options; do grep -qE -- "^\.B (-h,)?$option" <<<"$page" || fail "$program.1 lacks $option"; done
done
for program in tutti-softverbs ${mpicc:+tutti-mpirun}; do
  [ -s "$prefix/share/man/man1/$program.1" ] || fail "$program has no man page"
done
printf '#!/bin/sh\necho "no such thing"\n' >"$scratch/silent"
chmod +x "$scratch/silent"
if python3 "$source/packaging/man_page.py" "$scratch/silent" silent 1 2>"$scratch/log"; then fail "silent has a man page"; fi
grep -q 'silent --help: expected what it does, and a line that begins with "Usage:"' "$scratch/log" ||
  { cat "$scratch/log"; fail "a program without --help is not refused"; }

# The modulefile, read as Environment Modules and Lmod do, by an interpreter of Tcl if there is one.
if command -v tclsh >/dev/null; then
  cat >"$scratch/module.tcl" <<'TCL'
set ModulesCurrentModulefile [lindex $argv 0]
foreach command {module-whatis conflict} { proc $command {args} {} }
proc prepend-path {name folder} { puts "$name [file isdirectory $folder]" }
source $ModulesCurrentModulefile
TCL
  folders=$(tclsh "$scratch/module.tcl" "$(echo "$prefix"/share/modulefiles/tutti/*)")
  grep -q '^CMAKE_PREFIX_PATH 1' <<<"$folders" || fail "the modulefile says: $folders"
  [ "$python" = none ] || grep -q '^PYTHONPATH 1' <<<"$folders" || fail "the modulefile says: $folders"
  if grep ' 0$' <<<"$folders"; then fail "the modulefile names these, which are no folders"; fi
fi

refused "a component that does not exist" \
  'tutti has no component "mip"; expected one of core, mpi, mpi-openmpi, mpi-mpich, pmix, fortran, soft, tools' \
  "$prefix" "$version" REQUIRED COMPONENTS core mip
refused "a prefix without MPI" \
  'was installed without its component "mpi"; it has core. Install tutti where CMake finds that MPI' \
  "$scratch/bare" "$version" REQUIRED COMPONENTS core mpi
refused "a prefix without PMIx" \
  'was installed without its component "pmix"; it has core. Install tutti where pkg-config finds pmix' \
  "$scratch/bare" "$version" REQUIRED COMPONENTS core pmix
refused "a prefix without Fortran" \
  'was installed without its component "fortran"; it has core. Build tutti with -D TUTTI_FORTRAN=ON' \
  "$scratch/bare" "$version" REQUIRED COMPONENTS fortran
refused "a prefix without programs" 'was installed without its component "tools"; it has core' \
  "$scratch/bare" REQUIRED COMPONENTS tools
refused "a project without a language" 'has none of them among its LANGUAGES' "$scratch/bare" REQUIRED
refused "a version of another interface" 'requested version "0.0"' "$prefix" 0.0 REQUIRED

# An optional part for MPI asks for no MPI, and the compiler may be MPI's own.
if [ -n "$mpicc" ]; then
  mkdir "$scratch/found"
  printf '%s\n' 'cmake_minimum_required(VERSION 3.25)' 'project(found LANGUAGES C)' \
    'find_package(tutti REQUIRED ${PARTS})' 'if(NOT "${tutti_mpi_FOUND}" STREQUAL "${EXPECTED}")' \
    '  message(FATAL_ERROR "tutti_mpi_FOUND is ${tutti_mpi_FOUND}")' 'endif()' >"$scratch/found/CMakeLists.txt"
  # found COMPILER PARTS TRUE|FALSE ARGUMENT...: whether the project has tutti::mpi.
  found() {
    local compiler=$1 parts=$2 expected=$3
    shift 3
    quietly "$cmake" -S "$scratch/found" -B "$scratch/found/$expected" -D CMAKE_PREFIX_PATH="$prefix" \
      -D CMAKE_C_COMPILER="$compiler" -D PARTS="$parts" -D EXPECTED="$expected" "$@"
  }
  found "$c" "OPTIONAL_COMPONENTS;mpi" FALSE -D CMAKE_DISABLE_FIND_PACKAGE_MPI=ON
  found "$mpicc" "COMPONENTS;mpi" TRUE
fi

# The recipes say what the project knows: options, and its version.
for recipe in "$source"/packaging/spack/package.py "$source"/packaging/easybuild/*.eb; do
  python3 -c 'import sys; compile(open(sys.argv[1]).read(), sys.argv[1], "exec")' "$recipe" || fail "$recipe"
  for option in $(grep -oE 'TUTTI_[A-Z_]+' "$recipe" | sort -u); do
    grep -Eqs "(option|set|find_program)\\($option( |\$)" "$source/CMakeLists.txt" "$source"/bindings/*/CMakeLists.txt || fail "$recipe: there is no $option"
  done
done
ls "$source/packaging/easybuild/tutti-$version".*.eb >/dev/null || fail "EasyBuild's recipe is for another version"

launcher=$(command -v ccache || true)
# project FOLDER ARGUMENT...: configures and builds it.
project() {
  local folder=$1
  shift
  rm -rf "$scratch/build"
  quietly "$cmake" -G Ninja -S "$source/tests/packages/$folder" -B "$scratch/build" \
    -D CMAKE_C_COMPILER="$c" -D CMAKE_CXX_COMPILER="$cxx" -D CMAKE_BUILD_TYPE=Release \
    -D CMAKE_CXX_FLAGS_RELEASE=-O0 ${launcher:+-D CMAKE_CXX_COMPILER_LAUNCHER="$launcher"} "$@"
  quietly "$cmake" --build "$scratch/build"
}
project installed_c -D MAIN="$source/tests/embedding/c_only/main.c" -D CMAKE_PREFIX_PATH="$scratch/bare"
for library in tutti c tutti_static c_static; do quietly "$scratch/build/with_$library"; done
readelf -d "$scratch/build/with_c" | grep -q 'NEEDED.*libtutti\.so\.' || fail "with_c has no libtutti.so"
if readelf -d "$scratch/build/with_c" | grep -E 'NEEDED.*(ibverbs|rdmacm|mpi|soft|stdc)'; then
  fail "a C program needs these directly"
fi
if readelf -d "$scratch/build/with_c_static" | grep 'NEEDED.*libtutti'; then
  fail "tutti::c_static is not the archive"
fi

if [ "$fortran" != none ]; then
  # Open MPI's modules are for the same compilers.
  mpifort=
  [[ $mpicc != *mpicc.openmpi ]] || mpifort=$(command -v mpifort.openmpi) || mpifort=
  project installed_fortran -D VERSION="$version" -D EXAMPLES="$source/examples" -D CMAKE_PREFIX_PATH="$prefix" \
    -D CMAKE_Fortran_COMPILER="$fortran" ${mpifort:+-D MPI=mpi -D MPI_Fortran_COMPILER="$mpifort"}
  for library in fortran fortran_static; do
    quietly timeout 60 "$scratch/build/with_$library"
    grep -qF 'rank 1: |x|^2 = 500' "$scratch/log" || { cat "$scratch/log"; fail "$library says this"; }
  done
  readelf -d "$scratch/build/with_fortran" | grep -q 'NEEDED.*libtutti\.so\.' || fail "with_fortran has no libtutti.so"
  if readelf -d "$scratch/build/with_fortran_static" | grep 'NEEDED.*libtutti'; then
    fail "tutti::fortran_static is not the archive"
  fi
  for program in ${mpifort:+mpi_fortran mpi_fortran_static}; do
    quietly timeout 60 "$@" -n 2 "$scratch/build/$program"
    grep -qF 'rank 1: |x|^2 = 500' "$scratch/log" || { cat "$scratch/log"; fail "$program says this"; }
  done
  # The folder says which modules it has.
  modules=$(find "$prefix" -name tutti.mod)
  number=$(sed -n 's|.*/gfortran-mod-\([0-9]*\)/tutti.mod$|\1|p' <<<"$modules")
  if [ -n "$number" ]; then
    [[ $(gzip -dc "$modules" | head -n 1) == *"version '$number'"* ]] || fail "$modules is of another version"
  fi
fi

project installed -D VERSION="$version" -D EXAMPLES="$source/examples" -D CMAKE_PREFIX_PATH="$prefix" \
  -D PARTS="${mpicc:+mpi}" ${mpicc:+-D MPI_C_COMPILER="$mpicc"}
cd "$scratch/build"
for program in dot_product dot_product_c dot_product_static cxx17; do quietly timeout 60 ./$program; done
quietly timeout 60 ./exact_sum 1000
quietly timeout 60 ./matrix_factorization --iterations 2
if [ -n "$mpicc" ]; then
  quietly timeout 60 "$@" -n 2 ./under_mpi
  quietly timeout 60 "$prefix/bin/tutti-mpirun" --launcher "$1" --table "${@:2}" -n 2 ./under_mpi
  grep -q '^tutti: calls of 2 ranks of' "$scratch/log" || { cat "$scratch/log"; fail "tutti-mpirun says this"; }
  readelf -d under_mpi | grep -q 'NEEDED.*libtutti_mpi_' || fail "under_mpi has no libtutti_mpi"
  if readelf -d under_mpi_static | grep 'NEEDED.*libtutti'; then fail "tutti::mpi_static is not the archive"; fi
  quietly timeout 60 "$@" -n 2 ./under_mpi_static
fi
if [ -e under_pmix ]; then
  if readelf -d under_pmix | grep -E 'NEEDED.*(mpi|stdc)'; then fail "a C program under PMIx needs these directly"; fi
  for program in under_pmix under_pmix_static; do
    if ./$program >"$scratch/log" 2>&1; then fail "$program ends well without a launcher"; fi
    grep -q 'PMIX_NAMESPACE is not set' "$scratch/log" || { cat "$scratch/log"; fail "$program says this"; }
  done
  if command -v mpirun.openmpi >/dev/null; then
    quietly timeout 60 mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 ./under_pmix
    grep -qF 'rank 1: |x|^2 = 500' "$scratch/log" || { cat "$scratch/log"; fail "under_pmix says this"; }
  fi
fi
"$prefix/bin/tutti-softverbs" ibv_devinfo 2>&1 | grep -q soft0 || fail "tutti-softverbs does not show its device"

if [ "$python" != none ]; then
  folder=$(find "$prefix" -path '*/tutti/__init__.py')
  folder=${folder%/tutti/__init__.py}
  cat >"$scratch/python.py" <<'PYTHON'
import importlib.metadata, importlib.util, sys
found = importlib.util.find_spec("tutti").origin
assert found.startswith(sys.argv[1]), found
assert importlib.metadata.version("tutti").startswith(sys.argv[2] + "."), importlib.metadata.version("tutti")
assert "Redistribution" in importlib.metadata.distribution("tutti").read_text("LICENSE")
sys.modules["numpy"] = None  # as if it were not there
try:
    import tutti
except ModuleNotFoundError as missing:
    assert missing.name == "numpy", missing
else:
    raise AssertionError("tutti needs no NumPy")
PYTHON
  export PYTHONDONTWRITEBYTECODE=1
  PYTHONPATH=$folder quietly "$python" "$scratch/python.py" "$folder" "$version"
  if "$python" -c 'import numpy' 2>/dev/null; then
    PYTHONPATH=$folder quietly timeout 60 "$python" "$source/examples/dot_product.py"
    grep -qF 'rank 1: |x|^2 = 500' "$scratch/log" || { cat "$scratch/log"; fail "the example in Python says this"; }
  fi
fi
# Public names only, in a version but for Python, which looks for one function.
for file in $(find "$prefix" -type f -name '*.so*' -not -path '*/softverbs/*' -not -name libtutti-mpi.so); do  # those: tests/tidy/symbols.sh
  names='(tutti_[a-z_]+|((typeinfo|typeinfo name|vtable) for )?tutti::.*)@@TUTTI_([A-Z]+_)?[0-9.]+'
  [[ $file != *python* ]] || names='PyInit__tutti'
  exported=$(nm -D --defined-only "$file" | grep -v ' A TUTTI_' | c++filt)
  [ -n "$exported" ] || fail "$file exports nothing"
  if grep -vE "^[0-9a-f]+ [A-Z] $names\$" <<<"$exported"; then fail "$file exports these"; fi
done

# What is loaded into programs of MPI stands in for functions of MPI (and one of UCX, by which MPICH makes
# progress), and has two names of its own.
for file in $(find "$prefix" -name libtutti-mpi.so); do
  exported=$(nm -D --defined-only "$file")
  grep -q ' T PMPI_Allreduce$' <<<"$exported" || fail "$file does not export PMPI_Allreduce"
  if grep -vE '^[0-9a-f]+ [TR] (P?MPIX?_[A-Za-z_]+|tutti_mpi_(calls|interposer)|ucp_worker_progress)$' <<<"$exported"; then
    fail "$file exports these"
  fi
done

# Fortran over MPI, and the other MPI, by pkg-config and their own compilers.
export PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name tutti.pc)")
if [ "$fortran" != none ] && [[ $mpicc == *mpicc.openmpi ]] && command -v mpifort.openmpi >/dev/null; then
  # shellcheck disable=SC2046 # words
  OMPI_FC=$fortran quietly mpifort.openmpi "$source/examples/under_mpi_fortran.f90" -o under_mpi_fortran \
    $(pkg-config --cflags --libs tutti-fortran tutti-mpi-openmpi)
  LD_LIBRARY_PATH=$(pkg-config --variable=libdir tutti) quietly timeout 60 "$@" -n 2 ./under_mpi_fortran
  grep -qF 'rank 1: |x|^2 = 500' "$scratch/log" || { cat "$scratch/log"; fail "under_mpi_fortran says this"; }
fi
for file in "$PKG_CONFIG_PATH"/tutti-mpi-*.pc; do
  name=${file##*/tutti-mpi-} name=${name%.pc}
  if [ "$mpicc" != "${mpicc%"$name"}" ] || ! command -v "mpicxx.$name" >/dev/null; then continue; fi
  libs=$(pkg-config --cflags --libs "tutti-mpi-$name")
  # shellcheck disable=SC2086 # words
  quietly $launcher "mpicxx.$name" -std=c++20 -c "$source/examples/under_mpi.cpp" -o other_mpi.o $libs
  # shellcheck disable=SC2086 # words
  quietly "mpicxx.$name" other_mpi.o -o other_mpi $libs
  root=
  [ "$name" != openmpi ] || root='--allow-run-as-root --oversubscribe'
  # shellcheck disable=SC2086 # words
  LD_LIBRARY_PATH=$(pkg-config --variable=libdir tutti) quietly timeout 60 "mpirun.$name" $root -n 2 ./other_mpi
done
