#!/usr/bin/env bash
# foreign.sh PROGRAM MPI LIBTUTTI-MPI COUNTS: programs of others, which know nothing of tutti.
# Promises: they print the same results with libtutti-mpi as without it, and tutti has done their reductions; with
# MPI_THREAD_MULTIPLE, MPI has.
# PROGRAM is one of the functions below; MPI is openmpi or mpich; COUNTS is the library of counts.c.
# Skipped (77) where Debian's package of the program is not installed.
#
# Sums of two numbers do not depend on their order, so with 2 ranks results are compared as they are printed.
# With more, MPI may add in another order: numbers may differ by 1e-6 of themselves, or 1e-10 of the greatest
# in the output, which is about the first residual.
set -euo pipefail
what=$1 mpi=$2 interposer=$3 counts=$4
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf '%s\n' "$what: $1" "${@:2}" >&2; exit 1; }
skip() { echo "skipped: $1"; exit 77; }
need() { [ -e "$1" ] || skip "$1 is missing: apt-get install $2"; }
cd "$work"
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

launch=(mpirun."$mpi")
[ "$mpi" != openmpi ] || launch+=(--oversubscribe)
[ "$mpi" != openmpi ] || [ "$(id -u)" -ne 0 ] || launch+=(--allow-run-as-root)

# run OUTPUT RANKS COMMAND...: by MPI alone.
run() {
  local output=$1 ranks=$2
  shift 2
  timeout 200 "${launch[@]}" -n "$ranks" "$@" >"$output" 2>&1 </dev/null ||
    fail "$*: status $?" "$(tail -n 30 "$output")"
}
# preloaded OUTPUT RANKS COMMAND...: the same with libtutti-mpi, to which the first `after` calls of a kind pass;
# what it has done is in the file counts.
after=3
preloaded() {
  local output=$1 ranks=$2
  shift 2
  rm -f counts
  run "$output" "$ranks" env COUNTS_FILE="$work/counts" TUTTI_MPI_AFTER="$after" \
    LD_PRELOAD="$interposer:$counts" "$@"
}
# took FUNCTION PERCENT: tutti has done at least so many of the calls of FUNCTION, all ranks together.
took() {
  awk -v name="MPI_$1" -v least="$2" '
    $1 == name { taken += $2; passed += $3 }
    END {
      printf "  of %d calls of %s, tutti took %d\n", taken + passed, name, taken
      exit !(taken > 0 && taken * 100 >= least * (taken + passed))
    }' counts || fail "expected that tutti takes $2 % of the calls of MPI_$1" "$(cat counts)"
}
# same RANKS PATTERN: the lines with PATTERN are the same in the files "without" and "with".
same() {
  grep -E "$2" without >without.lines || fail "no line has \"$2\"" "$(cat without)"
  grep -E "$2" with >with.lines || fail "no line has \"$2\"" "$(cat with)"
  if [ "$1" -le 2 ]; then
    diff without.lines with.lines >difference || fail "results differ" "$(head -n 20 difference)"
  else
    paste -d '\n' without.lines with.lines | awk '
      function is_number(word) { return word ~ /^[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?$/ }
      { gsub(/[,=()]/, " ") }
      NR % 2 { words = split($0, expected); next }
      {
        if (NF != words) { print "other words: " $0; wrong = 1; exit }
        for (i = 1; i <= NF; ++i) {
          if ($i == expected[i]) { if (is_number($i) && $i > greatest) greatest = $i; continue }
          if (!is_number($i) || !is_number(expected[i])) { print $i " in place of " expected[i]; wrong = 1; exit }
          if (expected[i] > greatest) greatest = expected[i]
          difference = $i - expected[i]; if (difference < 0) difference = -difference
          size = expected[i] < 0 ? -expected[i] : expected[i]
          if (difference > 1e-6 * size && difference > 1e-10 * greatest) {
            print $i " in place of " expected[i] ": " $0; wrong = 1; exit
          }
        }
      }
      END { exit wrong }' >difference || fail "results differ" "$(cat difference)"
  fi
  echo "  $(wc -l <with.lines) lines are the same"
}
# compare RANKS PATTERN COMMAND...
compare() {
  local ranks=$1 pattern=$2
  shift 2
  echo "$ranks ranks: $(basename "$1") ${*:2}"
  run without "$ranks" "$@"
  preloaded with "$ranks" "$@"
  same "$ranks" "$pattern"
}

# Conjugate gradient with multigrid, and GMRES, of hypre.
hypre() {
  need /usr/include/hypre/HYPRE.h libhypre-dev
  "mpicc.$mpi" -std=gnu11 -O1 -I/usr/include/hypre -o program "$here/foreign_hypre.c" -lHYPRE -lm
  local ranks
  for ranks in 2 4; do
    compare $ranks '^ *[0-9]+ +[0-9.]+e|iterations, residual' ./program
    took Allreduce 60
  done
}

# The benchmarks of HPC Challenge, small: they check their results.
hpcc() {
  need /usr/bin/hpcc hpcc
  sed -e 's/^1000  /120  /' -e 's/^80  /20  /' -e '11s/^2/1/' /usr/share/doc/hpcc/examples/_hpccinf.txt >hpccinf.txt
  echo "2 ranks: hpcc"
  run without 2 hpcc
  mv hpccoutf.txt without
  preloaded with 2 hpcc
  mv hpccoutf.txt with
  same 2 '^\|\|Ax-b.*=|Found [0-9]+ errors|with error|tests completed|Validates|Errors=|_residual=|^Success='
  took Bcast 80
  took Allreduce 80
}

# A sparse direct solver: the driver that SuperLU_DIST ships, with a small matrix.  It asks for
# MPI_THREAD_MULTIPLE, so that all its calls pass.
superlu() {
  local folder=/usr/lib/x86_64-linux-gnu/superlu-dist/tests/EXAMPLE
  need $folder/pddrive libsuperlu-dist-dev
  after=0
  compare 4 'Sol +[0-9]+:' $folder/pddrive -r 2 -c 2 $folder/g20.rua
  awk '{ taken += $2; passed += $3 } END { exit taken != 0 || passed == 0 }' counts ||
    fail "expected that all calls pass" "$(cat counts)"
}

# BLACS' own tests of sums, maxima and minima over rows and columns of ranks, which Debian has for both MPIs:
# operators and types are the program's.  Its communicators are made and freed all the time, so the first calls
# are taken, too.  MPICH's ranks need a CPU each.
scalapack() {
  local folder=/usr/lib/x86_64-linux-gnu/scalapack/$mpi-tests ranks=2 rows='2 1' columns='1 2'
  need $folder/xCbtest scalapack-mpi-test
  [ "$mpi" = mpich ] || ranks=4 rows='2 4' columns='2 1'
  cat >bt.dat <<TEXT
'Sums, maxima and minima'
6                 device
'blacstest.out'
'F'               Run SDRV?
'F'               Run BSBR?
'T'               Run COMB?
'F'               Run AUX?
5                 Number of precisions
'I' 'S' 'D' 'C' 'Z'
0                 Verbosity
TEXT
  cat >comb.dat <<TEXT
3                 Number of operators
'+' '>' '<'
3                 Number of scopes
'R' 'C' 'A'
0                 Repeatability
0                 Coherence
1                 Number of topologies
' '
4                 Number of matrices
3 1 2 25          M
5 1 3 19          N
5 1 4 25          LDASRC
9 1 5 25          LDADEST
4 1 -1 25         LDI
2                 Number of destinations
0 -1              RDEST
0 -1              CDEST
2                 Number of grids
$rows             NPROW
$columns          NPCOL
TEXT
  after=0
  compare $ranks 'TESTS[.;]' $folder/xCbtest
  took Allreduce 60
  took Reduce 60
}

# HPCG's kernel, compiled here for either MPI.
cg() {
  "mpicc.$mpi" -std=gnu11 -O2 -w -o program "$here/conjugate_gradient.c" -lm
  local ranks
  for ranks in 2 4; do
    compare $ranks 'residual|after' ./program
    took Allreduce 90
  done
}

# A tutorial of PETSc with the options of its own tests, and larger.
petsc() {
  local tutorials=(/usr/share/petsc/*/share/petsc/examples/src/ksp/ksp/tutorials) ranks solver program
  need "${tutorials[0]}/ex2.c" libpetsc3.18-dev-examples
  pkg-config --exists PETSc || skip "PETSc.pc is missing: apt-get install libpetsc-real-dev"
  # shellcheck disable=SC2046 # words
  for program in ex2 ex5; do
    "mpicc.$mpi" $(pkg-config --cflags PETSc) -o $program "${tutorials[0]}/$program.c" $(pkg-config --libs PETSc) -lm
  done
  for ranks in 2 4; do
    for solver in cg gmres pipecg; do
      compare $ranks 'KSP Residual norm|Norm of error|iterations' \
        ./ex2 -m 50 -n 40 -ksp_type $solver -pc_type jacobi -ksp_monitor -ksp_rtol 1e-6
      [ $solver = pipecg ] || took Allreduce 50
    done
    # The pipelined form has nonblocking reductions alone, and what these want a blocking one makes: that
    # comes between the two systems of this program.
    compare $ranks 'Relative norm' ./ex5 -m 50 -ksp_type pipecg -pc_type jacobi -ksp_rtol 1e-6
    ! grep -q '^MPI_Iallreduce ' counts || took Iallreduce 15
  done
}

# mpi4py's own tests, in the folder MPI4PY_TESTS (test/ of the source of Debian's version): as it begins, with
# MPI_THREAD_MULTIPLE, where all calls pass, and with MPI_THREAD_SERIALIZED.
mpi4py() {
  need /usr/lib/python3/dist-packages/mpi4py python3-mpi4py
  [ -n "${MPI4PY_TESTS:-}" ] || skip "MPI4PY_TESTS does not name the folder of mpi4py's tests"
  local ranks level tests
  for level in multiple serialized; do
    for ranks in 2 3; do
      echo "$ranks ranks, $level"
      preloaded with $ranks env PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 "$MPI4PY_TESTS/runtests.py" \
        --no-builddir --thread-level=$level --exclude spawn --exclude dynproc
      # A rank's mark for a skipped test may stand before another one's OK.
      tests=$(grep -cE '^s*OK' with) || true
      [ "$tests" -eq $ranks ] || fail "expected $ranks times OK" "$(tail -n 30 with)"
      [ $level = multiple ] || { took Allreduce 1; took Bcast 1; }
    done
  done
}

case $what in
  hypre | hpcc | superlu | scalapack | cg | petsc | mpi4py) "$what" ;;
  *) echo "foreign.sh: unknown program \"$what\"" >&2; exit 2 ;;
esac
