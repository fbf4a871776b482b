#!/usr/bin/env bash
# Promise: whatever one script has left in a build tree, the next one configures what it needs itself:
# after scripts/demo.sh, which needs no tests, scripts/test.sh finds them, and kernel-verbs its target.
# The scripts are run up to where they would build.
# demo_then_test.sh CMAKE SOURCE
set -eu
cmake=$1 source=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# A tree of links: the scripts build beside themselves.
tree=$scratch/tree
mkdir "$tree" "$scratch/bin"
for entry in "$source"/* "$source"/.ci; do
  [ "${entry##*/}" = build ] || ln -s "$entry" "$tree"
done
# Only the configuration of "release" is real.  Nothing is installed, nothing is built or tested.
cat >"$scratch/bin/cmake" <<EOF
#!/bin/sh
echo "\$*" >>"$scratch/calls"
case "\$*" in
  "--preset release"*) exec "$cmake" "\$@" ;;
esac
exit 1
EOF
printf '#!/bin/sh\necho install ok installed\n' >"$scratch/bin/dpkg-query"
for name in ctest mpirun.openmpi apt-get sudo; do
  printf '#!/bin/sh\necho "%s is not to be run: $*" >&2\nexit 1\n' $name >"$scratch/bin/$name"
done
chmod +x "$scratch"/bin/*

fail() {
  echo "FAILED: $*"
  cat "$scratch/log" "$tree"/build/*.configure.log
  exit 1
}
# run SCRIPT: which fails, as nothing can be built.
run() {
  : >"$scratch/calls"
  if (cd "$tree" && PATH=$scratch/bin:$PATH "scripts/$1" >"$scratch/log" 2>&1); then
    fail "$1 passes although nothing can be built"
  fi
  grep -q '^--preset release' "$scratch/calls" || fail "$1 does not configure \"release\""
  grep -q '^--build --preset release' "$scratch/calls" || fail "$1 does not build \"release\""
}
# tests: how many there are.
tests() {
  (cd "$tree" && "${cmake%cmake}ctest" --test-dir build/release -N) | sed -n 's/^Total Tests: //p'
}

run demo.sh
[ "$(tests)" = 0 ] || fail "a new tree has $(tests) tests after demo.sh, which needs no GoogleTest"
run test.sh
count=$(tests)
[ "$count" -ge 200 ] || fail "$count tests after demo.sh and test.sh"
grep -q '^build device_test_programs:' <(sed 's/^build .*device_test_programs:/build device_test_programs:/' \
  "$tree/build/release/build.ninja") || fail "no target device_test_programs, for kernel-verbs"
run demo.sh
[ "$(tests)" = "$count" ] || fail "demo.sh has taken the tests out of a tree that has them"
# What a user may have said earlier.
"$cmake" -S "$tree" -B "$tree/build/release" -D TUTTI_TESTS=OFF -D TUTTI_BENCHMARKS=OFF \
  >"$scratch/log" 2>&1 || fail "TUTTI_TESTS=OFF"
run test.sh
[ "$(tests)" = "$count" ] || fail "$(tests) tests, not $count, after TUTTI_TESTS=OFF and test.sh"
echo "$count tests after demo.sh and test.sh"
