# Shared by the scripts: where the project is, how Debian packages are installed, how it is built, and
# how a script shows that it is alive.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\n== %s\n' "$*"; }

# install PACKAGE...: those that are missing, with sudo only if not root.
install() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  say "installing ${missing[*]}"
  local sudo=()
  [ "$(id -u)" -eq 0 ] || sudo=(sudo)
  [[ "${missing[*]}" != *:arm64* ]] || "${sudo[@]}" dpkg --add-architecture arm64
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null
}

packages_to_build=(g++ cmake ninja-build ccache pkg-config libibverbs-dev librdmacm-dev libopenmpi-dev
  openmpi-bin nlohmann-json3-dev libcli11-dev libfmt-dev pybind11-dev python3-dev
  gfortran)
packages_to_test=(libgtest-dev librapidcheck-dev python3 python3-jsonschema strace ibverbs-utils perftest ucx-utils
  valgrind procps python3-numpy python3-mpi4py)
packages_to_test_all=(clang clang-format clang-tidy libclang-rt-14-dev libmpich-dev mpich
  python3-pyverbs libfabric-bin libgloo-dev abigail-tools dpkg-dev file groff-base man-db tcl
  munge slurmctld slurmd
  hpcc libhypre-dev libsuperlu-dist-dev scalapack-mpi-test)
# For the virtual machine of scripts/kernel-verbs.
packages_to_boot=(qemu-system-x86 busybox-static cpio kmod xz-utils iproute2 procps ibverbs-providers
  ibverbs-utils rdmacm-utils perftest)

# For preset "aarch64"; those of the architecture arm64 come beside the machine's own.
packages_to_emulate=(g++-aarch64-linux-gnu qemu-user-static libstdc++6:arm64 libibverbs-dev:arm64
  librdmacm-dev:arm64 libgtest-dev:arm64 librapidcheck-dev:arm64)

# configure PRESET [ARGUMENT...]: says all that the caller needs.  The presets set TUTTI_TESTS and
# TUTTI_BENCHMARKS, so that what another script has left in the cache does not count.
configure() {
  local preset=$1
  shift
  cmake --preset "$preset" "$@" >"build/$preset.configure.log" 2>&1 </dev/null ||
    { cat "build/$preset.configure.log" >&2; return 1; }
}

# minutes SECONDS: as people read it, 75 is 1:15.
minutes() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# progress LOG: writes what ninja says to LOG, and says how far it is: on a terminal in one line that
# changes every second, elsewhere in a line each minute.
progress() {
  local log=$1 line finished=0 all=0 every=60 before= after='\n' begin=$SECONDS wait left
  [ -t 1 ] && every=1 before='\r\033[K' after=
  local next=$((SECONDS + every))
  : >"$log"
  while :; do
    wait=$((next - SECONDS))
    if IFS= read -r -t $((wait > 0 ? wait : 1)) line; then
      printf '%s\n' "$line" >>"$log"
      [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] && finished=${BASH_REMATCH[1]} all=${BASH_REMATCH[2]}
    elif [ $? -le 128 ]; then
      break  # The end; above 128, the time is up, and the line has at most begun.
    else
      printf '%s' "$line" >>"$log"
    fi
    [ $SECONDS -ge $next ] || continue
    next=$((SECONDS + every))
    left=
    [ "$finished" -eq 0 ] ||
      left=", about $(minutes $(((SECONDS - begin) * (all - finished) / finished))) left"
    printf "$before  built %d of %d in %s%s$after" "$finished" "$all" \
      "$(minutes $((SECONDS - begin)))" "$left"
  done
  if [ "$all" -eq 0 ]; then
    printf "$before  nothing to build\n"
  else
    printf "$before  built %d of %d in %s\n" "$finished" "$all" "$(minutes $((SECONDS - begin)))"
  fi
}

# compile PRESET [TARGET...]: of a tree that is configured; shows how far it is.  The log is
# build/PRESET.build.log, and its end is shown if something does not compile.
compile() {
  local preset=$1
  shift
  cmake --build --preset "$preset" -j "$(nproc)" ${1:+--target "$@"} 2>&1 </dev/null |
    progress "build/$preset.build.log" ||
    { tail -n 50 "build/$preset.build.log" >&2; return 1; }
}

# build PRESET [TARGET...]: with its tests.
build() {
  configure "$1" && compile "$@"
}

# alive WHAT COMMAND...: a line each minute says how long COMMAND has been running.
alive() {
  local what=$1 begin=$SECONDS status=0 beat
  shift
  (
    trap 'kill $! 2>/dev/null; exit' TERM
    while :; do
      sleep 60 &
      wait $!
      echo "  $what: running for $(minutes $((SECONDS - begin)))"
    done
  ) &
  beat=$!
  "$@" || status=$?
  kill "$beat" 2>/dev/null || true
  wait "$beat" 2>/dev/null || true
  return $status
}

# stage NAME: what has begun is timed until the next one begins; stages prints the table of all.
stage_names=() stage_seconds=() stage_began=
stage() {
  end_stage
  stage_names+=("$*")
  stage_began=$SECONDS
  say "$*"
}
end_stage() {
  [ -z "$stage_began" ] || stage_seconds+=($((SECONDS - stage_began)))
  stage_began=
}
stages() {
  local number
  end_stage
  say "stages, in minutes:seconds"
  for number in "${!stage_names[@]}"; do
    printf '%7s  %s\n' "$(minutes "${stage_seconds[number]}")" "${stage_names[number]}"
  done
  printf '%7s  %s\n' "$(minutes $SECONDS)" "in all"
}
mkdir -p build
