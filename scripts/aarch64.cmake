# Toolchain for AArch64 with Debian's cross compiler.  CTest runs the programs under qemu-user, which
# finds the loader and the libraries where Debian's packages of the architecture arm64 put them.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)
