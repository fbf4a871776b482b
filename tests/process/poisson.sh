#!/usr/bin/env bash
# poisson.sh PROGRAM solves PICTURE | PROGRAM refusals | PROGRAM ranks N
# Promises of the solver: with --exact the residuals have the same bits for every number of ranks; without
# it, still on all ranks; a matrix of a file is that of the grid; what cannot be done is refused.
set -euo pipefail
program=$1
group=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf '%s\n' "$@" >&2; exit 1; }

# solve NAME ARGUMENT...: keeps what is printed, and the residuals of all ranks.
solve() {
  local name=$1
  shift
  timeout 200 "$program" --history "$work/$name" "$@" >"$work/$name.txt" ||
    fail "$*: status $?" "$(cat "$work/$name.txt")"
}
# bits NAME: the residuals of each rank without times; one line, a checksum, if all ranks have the same.
bits() {
  local file
  for file in "$work/$1".*.csv; do cut -d, -f1-3,5 "$file" | sha256sum; done | sort -u
}
# alike NAME RANKS: all ranks have the same residuals.
alike() {
  [ "$(ls "$work/$1".*.csv | wc -l)" -eq "$2" ] || fail "$1: expected residuals of $2 ranks"
  [ "$(bits "$1" | wc -l)" -eq 1 ] || fail "$1: the ranks have different residuals"
}

case $group in
  solves)
    # Both solvers, a grid whose rows no number of ranks but 1, 2, 3 and 5 divides.
    for ranks in 1 2 3 5 8; do
      solve exact$ranks --ranks $ranks --grid 6x5x4 --exact
      solve plain$ranks --ranks $ranks --grid 6x5x4
      alike exact$ranks $ranks
      alike plain$ranks $ranks
    done
    # Residuals of more than one iteration, and an x that is the known one.
    [ "$(wc -l <"$work/exact1.0.csv")" -gt 20 ] || fail "hardly any residuals"
    awk '/^(cg|pipelined) / { rows += $5 < 1e-8 && $6 < 1e-6 } END { exit rows != 2 }' \
      "$work/exact8.txt" || fail "not solved" "$(cat "$work/exact8.txt")"
    [ "$(for ranks in 1 2 3 5 8; do bits exact$ranks; done | sort -u | wc -l)" -eq 1 ] ||
      fail "--exact: residuals depend on the number of ranks"
    [ "$(for ranks in 1 2 3 5 8; do bits plain$ranks; done | sort -u | wc -l)" -gt 1 ] ||
      fail "residuals are alike without --exact, too: this shows nothing"

    # More ranks than rows of the grid, and 27 points.
    solve narrow --ranks 3 --grid 2x1 --solver cg
    solve wide --ranks 2 --grid 4x3x3 --stencil 27
    grep -q '4x3x3, 27-point: 36 unknowns, 2 ranks, plain' "$work/wide.txt" || fail "27 points"

    # A file of the matrix of a grid, with blank lines and comments, in Windows' manner.
    {
      printf '%%%%MatrixMarket matrix coordinate real symmetric\r\n%% a grid\r\n\r\n12 12 29\r\n'
      for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
        printf '%d %d 4.0e0\r\n' $i $i
        [ $((i % 4)) -eq 0 ] || printf '%d %d -1\r\n' $((i + 1)) $i
        [ $i -gt 8 ] || printf '%d %d -1.0\r\n' $((i + 4)) $i
      done
    } >"$work/grid.mtx"
    solve file --ranks 2 --exact --matrix "$work/grid.mtx"
    solve grid --ranks 3 --exact --grid 4x3
    alike file 2
    [ "$(bits file)" = "$(bits grid)" ] || fail "a matrix is another one from a file"

    "$3" "$work/picture.svg" "$work/plain2.0.csv"
    [ "$(grep -c '<polyline' "$work/picture.svg")" -eq 2 ] || fail "expected a picture of two lines"
    ;;

  refusals)
    expect() {  # STATUS TEXT ARGUMENT...
      local expected=$1 text=$2 status=0
      shift 2
      timeout 20 "$program" "$@" >"$work/output" 2>&1 || status=$?
      [ $status -eq "$expected" ] && grep -qF -e "$text" "$work/output" ||
        fail "$*: status $status" "$(cat "$work/output")" "expected $expected, $text"
    }
    matrix() { printf '%b' "$1" >"$work/matrix"; }
    symmetric='%%MatrixMarket matrix coordinate real symmetric\n'
    general='%%MatrixMarket matrix coordinate real general\n'

    expect 0 '--grid WxH[xD]' --help
    expect 2 '--wrong: unknown; expected --grid, ' --wrong
    expect 2 '--with: unknown' --with mpi
    expect 2 '--grid: expected a value after it' --grid
    for grid in 0x8 8x0x8 8 x 8x 8x8x8x8 -1x8 8xy 100000x100000 18446744073709551617x1; do
      expect 2 "--grid $grid: expected WIDTHxHEIGHT" --grid $grid
    done
    expect 2 '--stencil 9: expected 5, 7 or 27' --stencil 9
    expect 2 '--stencil 27: expected 5 with a grid of two dimensions' --stencil 27 --grid 4x4
    expect 2 '--stencil 5: expected 7 or 27' --grid 4x4x4 --stencil 5
    expect 2 '--solver gmres: expected cg, pipelined or both' --solver gmres
    expect 2 '--tolerance 0: expected a number between 0 and 1' --tolerance 0
    expect 2 '--tolerance nan: expected' --tolerance nan
    expect 2 '--ranks 0: expected a whole number from 1 to 1000' --ranks 0
    expect 2 '--iterations 1e3: expected a whole number' --iterations 1e3
    expect 2 '--repeat -1: expected a whole number' --repeat -1
    expect 2 'expected no --grid and no --stencil with it' --matrix none --grid 4x4
    expect 2 '--matrix none: cannot be opened' --matrix none

    expect_matrix() {  # TEXT FILE
      matrix "$2"
      expect 2 "--matrix $work/matrix: $1" --matrix "$work/matrix"
    }
    expect_matrix 'is empty' ''
    expect_matrix 'line 1: expected "%%MatrixMarket matrix coordinate' '1 1 1\n1 1 1\n'
    expect_matrix 'line 1: expected' '%%MatrixMarket matrix array real general\n1 1\n1\n'
    expect_matrix 'line 1: expected' '%%MatrixMarket matrix coordinate complex symmetric\n'
    expect_matrix 'ends before the line of rows' "$symmetric% no more\n"
    expect_matrix 'line 2: expected rows, columns and entries, got "2 2"' "${symmetric}2 2\n"
    expect_matrix 'has 2 rows and 3 columns; expected a square matrix' "${general}2 3 2\n1 1 1\n"
    expect_matrix 'has 0 rows' "${symmetric}0 0 0\n"
    expect_matrix 'has 99999999999 rows' "${symmetric}99999999999 99999999999 1\n"
    expect_matrix 'has 3 rows, but only 2 entries' "${symmetric}3 3 2\n1 1 1\n2 2 1\n"
    expect_matrix 'ends after 2 entries; expected 3, is the file cut off?' \
      "${symmetric}2 2 3\n1 1 2\n2 1 -1\n"
    expect_matrix 'line 4: expected row, column and value, got "2 1 -"' \
      "${symmetric}2 2 3\n1 1 2\n2 1 -"
    expect_matrix 'line 5: expected row and column from 1 to 2, got "3 2 2"' \
      "${symmetric}2 2 3\n1 1 2\n2 1 -1\n3 2 2\n"
    expect_matrix 'line 3: expected a finite value' "${symmetric}1 1 1\n1 1 nan\n"
    expect_matrix 'line 4: expected entries of the lower triangle' \
      "${symmetric}2 2 3\n1 1 2\n1 2 -1\n2 2 2\n"
    expect_matrix 'line 4: expected nothing more after 1 entries' "${symmetric}1 1 1\n1 1 1\n1 1 1\n"
    expect_matrix 'has row 1, column 1 twice' "${symmetric}1 1 2\n1 1 1\n1 1 1\n"
    expect_matrix 'expected a symmetric matrix, but row 1, column 2 differs from row 2, column 1' \
      "${general}2 2 4\n1 1 2\n1 2 -1\n2 1 -2\n2 2 2\n"
    expect_matrix 'expected a symmetric matrix' "${general}2 2 3\n1 1 2\n1 2 -1\n2 2 2\n"

    expect 1 'has not converged' --grid 8x8 --iterations 3
    matrix "${symmetric}2 2 2\n1 1 1\n2 2 -1\n"
    expect 1 'the matrix is not positive definite' --matrix "$work/matrix"
    expect 1 'cannot be written' --grid 4x4 --history "$work/none/there"
    ;;

  ranks)
    solve one --ranks 1 --grid 12x10 --exact --solver cg
    solve many --ranks "$3" --grid 12x10 --exact --solver cg
    alike many "$3"
    [ "$(bits one)" = "$(bits many)" ] || fail "$3 ranks: residuals differ from those of one"
    ;;
esac
