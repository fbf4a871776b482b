# Shared by the scripts: where the project is, and how Debian packages are installed.
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
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null
}

packages_to_build=(g++ cmake ninja-build ccache pkg-config libibverbs-dev librdmacm-dev libopenmpi-dev
  openmpi-bin nlohmann-json3-dev libcli11-dev libfmt-dev)
packages_to_test=(libgtest-dev librapidcheck-dev python3 strace ibverbs-utils perftest ucx-utils
  valgrind)
packages_to_test_all=(clang clang-format clang-tidy libclang-rt-14-dev libmpich-dev mpich)
# For the virtual machine of scripts/kernel-verbs.
packages_to_boot=(qemu-system-x86 busybox-static cpio kmod xz-utils iproute2 procps ibverbs-providers
  ibverbs-utils rdmacm-utils perftest)

# build PRESET [TARGET...]
build() {
  local preset=$1
  shift
  cmake --preset "$preset" >"build/$preset.configure.log" 2>&1 ||
    { cat "build/$preset.configure.log" >&2; return 1; }
  cmake --build --preset "$preset" -j "$(nproc)" ${1:+--target "$@"}
}
mkdir -p build
