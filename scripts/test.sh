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
"asan" and runs the tests, those of whole jobs with "release" alone; 15 to 25 minutes on 2 cores.
  --all   also: jobs with sanitizers, perftest and UCX, what has threads with "tsan", MPI's part with
          "release-mpich", "asan-clang" in place of "asan", clang-format, clang-tidy, the long runs
          (200,000 calls, 100 and 1,000 kills, 30 s of fuzzing, every node shape of 11 ranks), and the
          kernel's verbs in a virtual machine; under 60 minutes.  Longer ones still:
          ctest --preset release -L soak.
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
stage() { say "$* (after $((SECONDS / 60)) min)"; }
run() {
  local preset=${1%:*} target=
  [[ $1 == *:* ]] && target=${1#*:}
  shift
  local plans=0
  if [ "${1:-}" = --with-plans ]; then plans=1; shift; fi
  stage "$preset: building"
  build "$preset" ${target:+"$target"} >"build/$preset.build.log" 2>&1 ||
    { tail -50 "build/$preset.build.log" >&2; failed+=("$preset (build)"); return 0; }
  stage "$preset: testing"
  [ $plans -eq 0 ] || ctest --preset "$preset" -L plan -j "$(nproc)" || failed+=("$preset (plans)")
  ctest --preset "$preset" "$@" || failed+=("$preset")
}
# Those of the device's verbs that depend on how its shared memory is compiled, and what is not there
# under sanitizers.
run_verbs_optimised() {
  ctest --preset release -R "^conformance_(ranks|process|adverse|atomic|lines|namespaces_(semantics|atomic|notification))" ||
    failed+=("release (verbs)")
}

# With each build what it can find: the sanitizers everything but what takes minutes, the optimised
# code all but most tests of the software device's verbs.
sanitized='long|soak|kernel|mpi|tidy|compile_fail|plan'
if [ $all -eq 1 ]; then
  stage "format"
  git ls-files '*.cpp' '*.hpp' '*.h' '*.c' | xargs clang-format --dry-run -Werror ||
    failed+=("clang-format")
  run release-mpich:mpi_test_programs -L '^mpi$'
  # Plans, simulations and programs know no threads; virtual time, namespaces, users, deaths and
  # streams of calls are about processes, which it cannot look across; bits and schedules are about
  # numbers, latency about time.  The ways to another process's memory differ in one test.
  run tsan:thread_test_programs -LE "$sanitized|simulation" \
    -E 'api_kernels|virtual_time|plan_|bench_|rendezvous|namespaces|unprivileged|_(failures|bits|schedules|latency)$|_soak_|_flags$|ring_bounced|every_collective|_(shared|cma)$|(adverse|atomic|semantics|kills|change)_bounce'
  # With Clang, so that it compiles everything, too; what simulates networks, and command lines, are
  # left to the optimised code, as are numbers.
  run asan-clang --with-plans -LE "$sanitized" -E 'plan_|virtual_time|bench_refusals|bits|(blocks|collectives|failures|isolation|misuse|schedules|soak|split)_flags|ring_(mapped|bounced)|every_collective'
  stage "clang-tidy"
  cmake --preset clang >build/clang.configure.log 2>&1 || failed+=("clang (configure)")
  git ls-files 'algorithms/*.cpp' 'verbs/*.cpp' 'shm/*.cpp' 'bootstrap/*.cpp' |
    xargs -P "$(nproc)" -n 4 clang-tidy --quiet -p build/clang >build/clang-tidy.log 2>&1 ||
    { grep -E 'error:|warning:' build/clang-tidy.log >&2; failed+=("clang-tidy"); }
  run release --with-plans -LE 'soak|plan|conformance' -E bootstrap_tcp_exchange  # which mostly waits
  run_verbs_optimised
else
  run asan --with-plans -LE "$sanitized|process" -E unprivileged
  run release --with-plans -LE 'long|soak|kernel|plan|conformance|tools' -E bootstrap_tcp_exchange
  run_verbs_optimised
fi

if [ ${#failed[@]} -gt 0 ]; then
  printf 'FAILED: %s\n' "${failed[*]}" >&2
  exit 1
fi
