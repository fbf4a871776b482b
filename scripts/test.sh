#!/usr/bin/env bash
# Builds and tests tutti.
set -euo pipefail
mode=usual
case "${1:-}" in
  "") ;;
  --all) mode=all ;;
  --quick) mode=quick ;;
  --aarch64) mode=aarch64 ;;
  --help | -h)
    cat <<'TEXT'
usage: scripts/test.sh [--quick | --all | --aarch64]

On Debian 12: installs what is missing (with sudo unless root), builds the presets "release" and
"asan" and runs the tests, what computes and whole jobs with "release" alone, and jobs in the usual
way to wait and to be notified alone; about 20 minutes on 2 cores.
  --quick what takes seconds of "release" alone: plans, units, simulations, rules about sources
  --all   also: scripts/demo.sh and --quick one after the other in a fresh clone, jobs with
          sanitizers, programs and tests of others on the software device (perftest, UCX, rdma-core),
          what has threads with "tsan", MPI's part with "release-mpich", "asan-clang" in place of
          "asan", with a fixed number of libFuzzer's inputs (more: scripts/fuzz), clang-format, clang-tidy, the long runs (200,000 calls, 100 and 1,000 kills, 30 s of
          fuzzing, every node shape of 10 ranks), and the kernel's verbs in a virtual machine; last,
          with nothing beside it, the tripwires of performance (microbench/targets.txt,
          soft_device.py); about 50 minutes.  Longer ones still: ctest --preset release -L soak.
  --aarch64
          instead: plans, units and simulations for AArch64, by Debian's cross compiler, under
          qemu-user; adds the architecture arm64 to dpkg; about 20 minutes
Prints what each stage took, and CTest's summary of all stages at the end.  Logs: build/*.log.
Exit status 0 if everything passed.
TEXT
    exit 0
    ;;
  *)
    echo "test.sh: unknown argument \"$1\"; expected nothing, --quick, --all, --aarch64 or --help" >&2
    exit 2
    ;;
esac
. "$(dirname "$0")/common.sh"

packages=("${packages_to_build[@]}" "${packages_to_test[@]}")
[ $mode != all ] || packages+=("${packages_to_test_all[@]}" "${packages_to_boot[@]}")
[ $mode != aarch64 ] || packages+=("${packages_to_emulate[@]}")
install "${packages[@]}"

failed=()
# test_with PRESET [CTEST ARGUMENT...]: remembers a failure and goes on.
: >build/test.log
test_with() {
  alive "$1: testing" ctest --preset "$@" 2>&1 | tee -a build/test.log ||
    failed+=("$1 (tests)")
}
# run PRESET[:TARGET] [--beside LABELS [--but NAMES]] [CTEST ARGUMENT...]: builds and tests.  Tests of
# LABELS, which need nothing but a CPU, run beside each other before the others, but for NAMES.
run() {
  local preset=${1%:*} target=
  [[ $1 == *:* ]] && target=${1#*:}
  shift
  local beside=()
  if [ "${1:-}" = --beside ]; then beside=(-L "$2"); shift 2; fi
  if [ "${1:-}" = --but ]; then beside+=(-E "$2"); shift 2; fi
  stage "$preset: building (log: build/$preset.build.log)"
  build "$preset" ${target:+"$target"} || { failed+=("$preset (build)"); return 0; }
  stage "$preset: testing"
  [ ${#beside[@]} -eq 0 ] || test_with "$preset" "${beside[@]}" -j "$(nproc)"
  test_with "$preset" "$@"
}
# Those of the device's verbs that depend on how its shared memory is compiled, what goes less far or
# is not there under sanitizers, and what is about time or privileges.
run_verbs_optimised() {
  test_with release \
    -R "^conformance_(ranks|process|adverse|atomic|crowd|lines|notification|latency|unprivileged|namespaces_(semantics|atomic|notification))" \
    "$@"
}
format() {
  git ls-files '*.cpp' '*.hpp' '*.h' '*.c' | xargs clang-format --dry-run -Werror
}
tidy() {
  configure clang || return
  # Where the software device is compiled, what stands in for it is not.
  git ls-files 'algorithms/*.cpp' 'verbs/*.cpp' 'shm/*.cpp' 'bootstrap/*.cpp' |
    grep -vxF verbs/soft/absent.cpp | xargs tests/tidy/clang_tidy.py build/clang >build/clang-tidy.log 2>&1 ||
    { grep -E 'error:|warning:' build/clang-tidy.log >&2 || tail -n 20 build/clang-tidy.log >&2; return 1; }
}
# held COMMAND...: whether COMMAND keeps its tripwires.  A command measures three times before it says
# that one is missed.  It is then run again after half a minute, and after another minute, because a
# host may keep the two CPUs far apart, or a neighbour busy, for some time.  What is missed each time
# stands in the last line of the summary.
held() {
  local log=build/performance.log pause
  for pause in 0 30 60; do
    sleep $pause
    "$@" 2>&1 | tee "$log" && return
  done
  missed+=("$(grep 'NOT met' "$log" | tr -s ' ' | paste -sd';')")
  return 1
}
# Ratios against the tripwires of microbench/targets.txt and soft_device.py.
performance() {
  if [ "$(nproc)" -lt 2 ]; then
    echo "skipped: needs two CPUs"
    return
  fi
  local launch=(timeout 120 mpirun.openmpi --oversubscribe) status=0 notify missed=()
  [ "$(id -u)" -ne 0 ] || launch+=(--allow-run-as-root)
  local bench=("${launch[@]}" -n 2 build/release/bin/tutti-bench)
  local judged=(--brief --iterations 2000 --tripwire --expect microbench/targets.txt)
  held "${bench[@]}" floor,oneway,barrier,allreduce,broadcast,reduce,allgather,alltoall \
    --bytes 8,1K,64K,256K --against mpi "${judged[@]}" || status=1
  for notify in immediate flag; do
    held "${bench[@]}" floor,wimm,barrier,allreduce --bytes 8 --ranks-per-node 1 \
      --notify $notify "${judged[@]}" || status=1
  done
  held microbench/soft_device.py --tripwire || status=1
  [ $status -eq 0 ] || failed+=("performance: ${missed[*]:-a benchmark failed}")
}
# What a newcomer does: the two commands of the README, one after the other, in a clone.  What is
# compiled comes from the compiler's cache.  The summary has its tests, too.
demo_then_tests() {
  local status=0
  rm -rf build/fresh
  git clone -q . build/fresh || return
  (cd build/fresh && scripts/demo.sh && scripts/test.sh --quick) || status=$?
  cat build/fresh/build/test.log >>build/test.log 2>/dev/null || true
  [ $status -ne 0 ] || rm -rf build/fresh
  return $status
}

# What computes, and what is one process that hardly sleeps or depends on time.
computing='plan|unit|simulation|compile_fail'
# Other ways to wait, to be notified and to reach the ring: CI has them all.
other_ways='^process_.*_(flags|block)$|ring_(mapped|bounced|republished)'
# With each build what it can find: the sanitizers everything but what takes minutes, the optimised
# code all but most tests of the software device's verbs.
sanitized='long|soak|kernel|mpi|tidy|compile_fail|plan'
case $mode in
  quick)
    run release --beside "$computing" --but bootstrap_tcp_exchange -L tidy -E self_contained
    ;;
  aarch64)
    run aarch64 -LE soak -j "$(nproc)"
    ;;
  usual)
    # What is above devices, shared memory and bootstrap has its sanitizers with --all, which has virtual
    # times inside nodes, too.
    run asan:memory_test_programs --beside unit --but '^(bench|tune|api|engine|runtime)_' \
      -L conformance -E 'unprivileged|latency' -j "$(nproc)"
    run release:usual_test_programs --beside "$computing|virtual|beside" \
      --but 'bootstrap_tcp_exchange|^long_|node_time' \
      -LE "long|soak|kernel|conformance|device|tools|virtual|beside|$computing" \
      -E "self_contained|$other_ways"
    # What these leave out takes a minute.
    run_verbs_optimised -E 'conformance_notification|namespaces_notification|unprivileged'
    ;;
  all)
    stage "format"
    format || failed+=("clang-format")
    run release-mpich:mpi_test_programs -L '^mpi$'
    # Plans, choices, simulations and programs know no threads; virtual time, namespaces, users, deaths and
    # streams of calls are about processes, which it cannot look across, and so are ranks of a node; bits
    # and schedules are about numbers, latency about time; blocks, roots and segments give the same threads
    # other plans.  The ways to another process's memory differ in one test.  First calls and isolation have no
    # threads.
    run tsan:thread_test_programs --beside unit --but 'runtime_kernels|tune_|bench_' \
      -LE "$sanitized|$computing|device" \
      -E '(virtual|node)_time|network_probes|plan_|bench_|tune_|rendezvous|namespaces|unprivileged|_(failures|chaos|bits|schedules|latency)$|_soak_|_flags$|ring_bounced|every_collective|example_exact_sum|^process_(blocks|first_call|isolation|nodes|rooted|segments)$|_(shared|cma)$|(adverse|atomic|semantics|kills|change)_bounce' \
      -j "$(nproc)"
    # With Clang, so that it compiles everything, too; what simulates networks, prices over grids, and
    # command lines, are left to the optimised code, as are numbers, latency and privileges; other ways to
    # wait to the thread sanitizer.  What polls lines in memory is seen in some of its variants.
    run asan-clang --beside "$computing|fuzz" --but 'compile_fail|^bits_|plan_trace|^tune_(node_|verify_)?choices' \
      -LE "$sanitized|$computing|beside|fuzz" -E 'plan_|(virtual|node)_time|network_probes|bench_(results|verbs)|bits|latency|unprivileged|(blocks|collectives|failures|isolation|misuse|rooted|schedules|soak|split)_flags|_block$|ring_(mapped|bounced|republished)|every_collective' \
      -j "$(nproc)"
    stage "clang-tidy"
    alive clang-tidy tidy || failed+=("clang-tidy")
    # What computes, and rules about sources and texts, are left to the fresh clone, which has what is
    # committed; streams of 10,000 calls are the first of those of 200,000.
    beside='virtual|beside|parallel' in_clone=tidy
    [ -z "$(git status --porcelain)" ] || beside+="|$computing" in_clone=no_label
    run release --beside "$beside" --but 'bootstrap_tcp_exchange|^process_soak_[0-9]' \
      -LE "soak|conformance|virtual|beside|parallel|$computing|$in_clone"
    [ $in_clone = no_label ] || test_with release -R tidy_self_contained
    run_verbs_optimised -j "$(nproc)"
    stage "demo.sh, then test.sh --quick, in a fresh clone"
    demo_then_tests || failed+=("demo.sh, then test.sh --quick, in a fresh clone (build/fresh)")
    stage "performance"
    performance
    ;;
esac

stages
# CTest's summary, of all its runs together.
say "tests"
awk '/tests? failed out of [0-9]+/ { failed += $4; all += $NF }
  /^Total Test time/ { seconds += $(NF - 1) }
  /^The following tests FAILED:/ { listing = 1 }
  listing && /^[ \t]*[0-9]+ - / { list = list $0 "\n" }
  /^$/ { listing = 0 }
  END {
    if (!all) { print "No tests were run"; exit }
    printf "%d%% tests passed, %d tests failed out of %d\n", (all - failed) * 100 / all, failed, all
    printf "Total Test time (real) = %.2f sec\n", seconds
    if (failed) printf "The following tests FAILED:\n%s", list
  }' build/test.log
if [ ${#failed[@]} -gt 0 ]; then
  printf 'FAILED: %s\n' "${failed[*]}" >&2
  exit 1
fi
