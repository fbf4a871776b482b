#!/usr/bin/env bash
# wrapper.sh TUTTI_MPIRUN: what it starts, by scripts that stand in for the mpirun of each MPI.
# Promises: the library is that of the launcher's MPI, and comes before what LD_PRELOAD has already; options
# of mpirun, the program and its arguments stay as they are; settings reach the ranks; the exit status is
# mpirun's; what cannot be started is said in one line, with exit status 2.
set -euo pipefail
wrapper=$1
. "$(dirname "$0")/../../support/scratch.sh"
unset LD_PRELOAD "${!TUTTI_@}"
mkdir -p "$scratch/bin" "$scratch/lib/tutti/openmpi" "$scratch/lib/tutti/mpich" "$scratch/a b" "$scratch/other"
cp "$wrapper" "$scratch/bin/tutti-mpirun"
cd "$scratch"
of_openmpi=$scratch/lib/tutti/openmpi/libtutti-mpi.so
of_mpich=$scratch/lib/tutti/mpich/libtutti-mpi.so
touch "$of_openmpi" "$of_mpich"

# launcher NAME VERSION: prints its arguments, one a line, and returns 7.
launcher() {
  printf '#!/bin/sh\nif [ "$*" = --version ]; then echo "%s"; exit 0; fi\nprintf "%%s\\n" "$@"; exit 7\n' "$2" >"$1"
  chmod +x "$1"
}
launcher openmpi4 'mpirun.openmpi (OpenRTE) 4.1.4'
launcher openmpi5 'mpirun (Open MPI) 5.0.3'
launcher mpich 'HYDRA build details:'
launcher intel 'Intel(R) MPI Library for Linux* OS, Version 2021.9'
launcher stranger 'srun 22.05'

# starts EXPECTED ARGUMENT...: words of the launcher, without spaces.
starts() {
  local expected=$1 found status=0
  shift
  found=$("${mine:-bin/tutti-mpirun}" "$@" | tr '\n' ' ') || status=$?
  [ "$status" = 7 ] || fail "$*: exit status $status"
  [ "$found" = "$expected " ] || fail "$*: starts $found"
}
starts "-x LD_PRELOAD=$of_openmpi -n 2 ./a -x" --launcher ./openmpi4 -n 2 ./a -x
starts "-x LD_PRELOAD=$of_openmpi -n 2 ./a" --launcher=./openmpi5 -n 2 ./a
starts "-genv LD_PRELOAD $of_mpich -n 2 ./a --table" --launcher "$PWD/mpich" -n 2 ./a --table
starts "-genv LD_PRELOAD $of_mpich ./a" --launcher ./intel ./a
ln -s openmpi4 mpirun
PATH=$PWD:$PATH starts "-x LD_PRELOAD=$of_openmpi ./a" ./a
ln -s ../bin/tutti-mpirun other/linked
mine=other/linked starts "-x LD_PRELOAD=$of_openmpi ./a" --launcher ./openmpi4 ./a

# Its own options, and settings that are there.
starts "-x LD_PRELOAD=$of_openmpi -x TUTTI_MPI=report ./a" --launcher ./openmpi4 --report ./a
starts "-genv LD_PRELOAD $of_mpich -genv TUTTI_MPI verify ./a" --launcher ./mpich --verify ./a
TUTTI_MPI=on TUTTI_MPI_AFTER=2 starts \
  "-genv LD_PRELOAD $of_mpich -genv TUTTI_MPI off -genv TUTTI_MPI_AFTER 2 -genv TUTTI_MPI_TABLE 1 ./a" \
  --off --table --launcher ./mpich ./a
TUTTI_DEVICE=soft0 starts "-x LD_PRELOAD=$of_openmpi -x TUTTI_DEVICE=soft0 ./a" --launcher ./openmpi4 ./a

# Several programs.  What Open MPI is told by -x is for one of them.
starts "-x LD_PRELOAD=$of_openmpi -n 1 ./a : -x LD_PRELOAD=$of_openmpi:b.so -n 2 ./b" \
  --launcher ./openmpi4 -n 1 ./a : -x LD_PRELOAD=b.so -n 2 ./b

# What is preloaded already stays, by whichever way it comes; the library is there once.
silent=$(command -v true)  # ld.so takes no program, and says so on each start
{
  LD_PRELOAD=$silent starts "-x LD_PRELOAD=$of_openmpi:$silent ./a" --launcher ./openmpi4 ./a
  LD_PRELOAD=$silent starts "-genv LD_PRELOAD $of_mpich:$silent ./a" --launcher ./mpich ./a
  LD_PRELOAD=$silent:$of_mpich starts "-genv LD_PRELOAD $silent:$of_mpich ./a" --launcher ./mpich ./a
} 2>/dev/null
starts "-x B -x LD_PRELOAD=$of_openmpi:a.so ./a" --launcher ./openmpi4 -x B -x LD_PRELOAD=a.so ./a
starts "-genv LD_PRELOAD $of_mpich:a.so ./a" --launcher ./mpich -genv LD_PRELOAD a.so ./a
starts "-genv LD_PRELOAD $of_mpich ./a : -env LD_PRELOAD $of_mpich:a.so ./b" \
  --launcher ./mpich ./a : -env LD_PRELOAD a.so ./b

# refused TEXT ARGUMENT...
refused() {
  local text=$1 status=0
  shift
  bin/tutti-mpirun "$@" >said 2>&1 || status=$?
  [ "$status" = 2 ] || fail "$*: exit status $status"
  grep -qF -- "$text" said || { cat said; fail "$*: does not say $text"; }
}
refused 'Usage: tutti-mpirun'
refused 'expected what mpirun shall start' --launcher ./mpich --table
refused './nothing: there is no such program' --launcher ./nothing ./a
refused '--launcher: expected the path' --launcher
refused './stranger: expected the mpirun of Open MPI or MPICH, but its --version says "srun 22.05"' \
  --launcher ./stranger ./a
refused '--report and --off: expected one of' --report --off --launcher ./mpich ./a
[ "$(wc -l <said)" = 1 ] || fail "more than a line"
rm "$of_mpich"
refused "$of_mpich is not there" --launcher ./mpich ./a
cp -r bin lib 'a b'
status=0
'a b/bin/tutti-mpirun' --launcher ./openmpi4 ./a >said 2>&1 || status=$?
[ $status = 2 ] && grep -q 'no path with a space' said || fail "a path with a space: $status"
bin/tutti-mpirun --help | grep -q '^Usage: tutti-mpirun' || fail "--help"
