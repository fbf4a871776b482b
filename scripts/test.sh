#!/usr/bin/env bash
# Builds and tests tutti.
set -euo pipefail
all=0
case "${1:-}" in
  "") ;;
  --all) all=1 ;;
  --help | -h)
    cat <<'TEXT'
usage: scripts/test.sh [--all]

On Debian 12: installs what is missing (with sudo unless root), builds the presets "release" and
"asan" and runs the tests; about 15 minutes on 2 cores.
  --all   also: "tsan", "clang" and "release-mpich", clang-format, clang-tidy, the README's example,
          the long runs (200,000 calls, 100 and 1,000 kills, 30 s of fuzzing, every node shape of 12
          ranks), and the kernel's verbs in a virtual machine; under 60 minutes.
Exit status 0 if everything passed.
TEXT
    exit 0
    ;;
  *)
    echo "test.sh: unknown argument \"$1\"; expected nothing, --all or --help" >&2
    exit 2
    ;;
esac
. "$(dirname "$0")/common.sh"

packages=("${packages_to_build[@]}" "${packages_to_test[@]}")
[ $all -eq 1 ] && packages+=("${packages_to_test_all[@]}" "${packages_to_boot[@]}")
install "${packages[@]}"

# run PRESET[:TARGET] [CTEST ARGUMENT...]: builds and tests; remembers a failure and goes on.  With
# --with-plans first, the plans' tests, which need nothing but a CPU, run beside each other before.
failed=()
run() {
  local preset=${1%:*} target=
  [[ $1 == *:* ]] && target=${1#*:}
  shift
  local plans=0
  if [ "${1:-}" = --with-plans ]; then plans=1; shift; fi
  say "$preset: building"
  build "$preset" ${target:+"$target"} >"build/$preset.build.log" 2>&1 ||
    { tail -50 "build/$preset.build.log" >&2; failed+=("$preset (build)"); return 0; }
  say "$preset: testing"
  # A measurement of minutes, which means something in "release" alone.
  local but_for='^$'
  [ "$preset" != asan ] || but_for=plan_early_combining
  [ $plans -eq 0 ] || ctest --preset "$preset" -L plan -j "$(nproc)" -E "$but_for" ||
    failed+=("$preset (plans)")
  ctest --preset "$preset" "$@" || failed+=("$preset")
}

if [ $all -eq 1 ]; then
  say "format"
  git ls-files '*.cpp' '*.hpp' '*.h' '*.c' | xargs clang-format --dry-run -Werror ||
    failed+=("clang-format")
  # What depends most on the compiler: kernels, memory orders, floating point.  The rest is compiled.
  run clang -L 'unit|simulation'
  ctest --preset clang -R '^process_(bits|nodes|rooted)$' || failed+=("clang (processes)")
  run release-mpich:mpi_test_programs -L mpi
  # Plans, simulations and tutti-info know no threads; virtual time, namespaces and users are about
  # processes, which it cannot look across.
  run tsan -LE 'long|soak|kernel|mpi|tidy|compile_fail|plan|simulation' \
    -E 'virtual_time|plan_|namespaces|unprivileged'
fi
# Minutes of what the unit tests of the same code look at in seconds.
run asan --with-plans -LE 'long|soak|kernel|mpi|tidy|compile_fail|plan' -E plan_json
if [ $all -eq 1 ]; then
  say "clang-tidy"
  git ls-files 'algorithms/*.cpp' 'verbs/*.cpp' 'shm/*.cpp' 'bootstrap/*.cpp' |
    xargs -P "$(nproc)" -n 4 clang-tidy --quiet -p build/clang >build/clang-tidy.log 2>&1 ||
    { grep -E 'error:|warning:' build/clang-tidy.log >&2; failed+=("clang-tidy"); }
  run release --with-plans -LE 'soak|plan'
else
  run release --with-plans -LE 'long|soak|kernel|plan'
fi

if [ ${#failed[@]} -gt 0 ]; then
  printf 'FAILED: %s\n' "${failed[*]}" >&2
  exit 1
fi
