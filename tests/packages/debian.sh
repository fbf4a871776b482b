#!/usr/bin/env bash
# Promise: the Debian packages can be installed by dpkg where their dependencies are, and nothing else is
# needed to compile examples in C, C++ and Fortran against them with pkg-config and to run them, in Python,
# too, and on the ranks of PMIx; they have man pages and the license; and they can be removed.  Done in a
# file system of its own above this machine's, so that nothing is left behind.
# debian.sh CPACK BUILD SOURCE
set -eu
cpack=$1 build=$2 source=$3
for tool in dpkg-deb dpkg-shlibdeps pkg-config; do
  command -v $tool >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
. "$(dirname "$0")/../support/scratch.sh"
mkdir "$scratch/packages" "$scratch/upper" "$scratch/work" "$scratch/root"
cd "$scratch/packages"
"$cpack" --config "$build/CPackConfig.cmake" -B "$scratch/packages" >"$scratch/log" 2>&1 ||
  { cat "$scratch/log"; exit 1; }
rm -rf _CPack_Packages
ls ./*.deb
version=$(dpkg-deb -f libtutti0_*.deb Version)

# needs PACKAGE PATTERN: its dependencies match.
needs() {
  local depends
  depends=$(dpkg-deb -f "$1"_*.deb Depends)
  grep -Eq "(^|, )$2(,|\$)" <<<"$depends" || fail "$1 depends on \"$depends\"; expected $2"
}
needs libtutti0 'libibverbs1 [^,]*'
needs libtutti0 'librdmacm1 [^,]*'
needs libtutti0 'libc6 [^,]*'
needs libtutti-dev "libtutti0 \\(= $version\\)"
needs libtutti-dev libibverbs-dev
needs tutti-tools 'libc6 [^,]*'
if dpkg-deb -f libtutti0_*.deb Depends | grep -E 'mpi|mpich'; then fail "libtutti0 needs MPI"; fi
for package in tutti-mpi-*.deb; do
  [ -e "$package" ] || break
  name=${package%%_*}
  needs "$name" "libtutti0 \\(= $version\\)"
  needs "$name" "lib(open)?mpi[^,]*"
  needs "$name" "tutti-mpirun \\(= $version\\)"
done
if [ -e tutti-pmix_*.deb ]; then
  needs tutti-pmix "libtutti0 \\(= $version\\)"
  needs tutti-pmix 'libpmix[^,]*'
fi
if [ -e libtutti-fortran-dev_*.deb ]; then
  needs libtutti-fortran-dev "libtutti-dev \\(= $version\\)"
  needs libtutti-fortran-dev '([^,]* \| )?gfortran-mod-[0-9]+'
fi
if [ -e python3-tutti_*.deb ]; then
  needs python3-tutti 'python3 \(>= 3\.[0-9]+~\)'
  needs python3-tutti 'python3 \(<< 3\.[0-9]+\)'
  needs python3-tutti python3-numpy
  needs python3-tutti 'libibverbs1 [^,]*'
fi
for package in *.deb; do
  dpkg-deb -f "$package" Description | head -n 1 | grep -q '[a-z]' || fail "$package has no description"
  dpkg-deb --fsys-tarfile "$package" | tar -xO "./usr/share/doc/${package%%_*}/copyright" 2>/dev/null |
    cmp - "$source/LICENSE" || fail "$package does not have its license where Debian looks for it"
done

# What is done with them: as root of the other file system.
cat >"$scratch/inside" <<'INSIDE'
set -eu
packages=$1 source=$2 version=$3
work=$(mktemp -d)
cd "$work"
dpkg --no-triggers --force-unsafe-io -i "$packages"/*.deb >log 2>&1 || { cat log; exit 1; }
ldconfig  # what the packages trigger, and no more than that
pkg-config --exact-version="$version" tutti || { echo "pkg-config finds another tutti"; exit 1; }
cc "$source/examples/dot_product_c.c" -o shared $(pkg-config --cflags --libs tutti)
cc "$source/examples/dot_product_c.c" -o static -Wl,-Bstatic $(pkg-config --cflags --libs tutti) \
  -Wl,-Bdynamic $(pkg-config --libs --static libibverbs librdmacm | sed 's/-lnl[^ ]*//g') -lstdc++ -lm -pthread
c++ -std=c++20 -O0 "$source/examples/dot_product.cpp" -o cxx $(pkg-config --cflags --libs tutti)
c++ -std=c++17 -O0 "$source/tests/packages/installed/cxx17.cpp" -o cxx17 $(pkg-config --cflags --libs tutti)
programs='shared static cxx cxx17'
if pkg-config --exists tutti-fortran; then
  gfortran "$source/examples/dot_product_fortran.f90" -o fortran $(pkg-config --cflags --libs tutti-fortran)
  programs="$programs fortran"
fi
if pkg-config --exists tutti-pmix; then
  cc "$source/examples/under_pmix.c" -o pmix $(pkg-config --cflags --libs tutti-pmix)
  if command -v mpirun.openmpi >/dev/null; then
    timeout 60 mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 ./pmix || { echo "pmix fails"; exit 1; }
  fi
fi
if [ -e "$packages"/python3-tutti_*.deb ] && python3 -c 'import numpy' 2>/dev/null; then
  timeout 60 python3 "$source/examples/dot_product.py" || { echo "python fails"; exit 1; }
fi
for program in $programs; do timeout 60 ./$program || { echo "$program fails"; exit 1; }; done
ldd shared | grep -q '=> /.*libtutti.so' || { ldd shared; exit 1; }
# Parts for MPI and PMIx find what they need.
for part in /usr/lib/libtutti_*.so /usr/lib/*/libtutti_*.so; do
  [ ! -e "$part" ] || ! ldd "$part" | grep 'not found' || exit 1
done
for library in /usr/lib/tutti/*/libtutti-mpi.so /usr/lib/*/tutti/*/libtutti-mpi.so; do
  [ -e "$library" ] || continue
  name=$(basename "$(dirname "$library")")
  command -v "mpicc.$name" >/dev/null && command -v "mpirun.$name" >/dev/null || continue
  "mpicc.$name" "$source/tests/mpi/allreduce.c" -o mpi
  root=
  [ "$name" != openmpi ] || root='--allow-run-as-root --oversubscribe'
  timeout 60 tutti-mpirun --launcher "mpirun.$name" --table $root -n 2 ./mpi >log 2>&1 || { cat log; exit 1; }
  grep -q '^tutti: MPI_Allreduce' log || { cat log; exit 1; }
done
[ ! -x /usr/bin/tutti-info ] || tutti-info settings >/dev/null
if command -v ibv_devinfo >/dev/null; then tutti-softverbs ibv_devinfo | grep -q soft0; fi
if command -v man >/dev/null; then
  for page in tutti-bench tutti-softverbs tutti-mpirun; do
    [ -e "/usr/share/man/man1/$page.1" ] || [ -e "/usr/share/man/man1/$page.1.gz" ] || continue
    man --warnings=w -l /usr/share/man/man1/$page.1* >page 2>complaints || { cat complaints; exit 1; }
    [ ! -s complaints ] || { cat complaints; exit 1; }
    grep -Eq -- '^ *(--bytes TEXT|TUTTI_SOFT_LOG|--launcher PATH)' page || { echo "$page: its page has no options"; exit 1; }
  done
fi
dpkg --no-triggers --force-unsafe-io -r $(cd "$packages" && ls *.deb | sed 's/_.*//') \
  >log 2>&1 || { cat log; exit 1; }
! find /usr/lib /usr/bin /usr/include /usr/share -name '*tutti*' | grep . || { echo "is left behind"; exit 1; }
INSIDE
# The namespace ends with its mounts.
overlay='mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"'
if [ "$(id -u)" -ne 0 ] ||
  ! unshare --mount --propagation private sh -c "$overlay" debian "$scratch" >"$scratch/log" 2>&1; then
  echo "packages are as they should be; skipped: installing them needs root, mount namespaces and overlayfs"
  cat "$scratch/log"
  exit 77
fi
unshare --mount --propagation private bash -eu -c '
  '"$overlay"'
  for folder in dev proc sys; do mount --rbind /$folder "$1/root/$folder"; done
  mkdir -p "$1/root/run/source"
  mount --bind "$2" "$1/root/run/source"
  mount --bind "$1/packages" "$1/root/mnt"
  cp "$1/inside" "$1/root/run/inside"
  exec chroot "$1/root" env LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin bash /run/inside /mnt /run/source "$3"
' debian "$scratch" "$source" "$version" || fail "what is installed"
