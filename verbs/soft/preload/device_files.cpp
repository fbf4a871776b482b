// Some programs look whether /dev/infiniband/<device> is a file that they may open, before they ask
// libibverbs for the device.  For a software device they get the answer for a character device that
// anybody may open.
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "verbs/soft/device.hpp"

namespace {

const char* look_at(const char* path) noexcept {
  using namespace std::string_view_literals;
  constexpr auto directory = "/dev/infiniband/"sv;
  if (path == nullptr) return path;
  const std::string_view asked(path);
  if (!asked.starts_with(directory)) return path;
  const auto devices = tutti::verbs::soft::devices();
  const bool is_soft = std::any_of(devices.begin(), devices.end(), [&](const auto& device) {
    return asked.substr(directory.size()) == device.dev_name;
  });
  return is_soft ? "/dev/null" : path;
}

/// The function that would be called without this library.
template <class Function>
Function* next(Function*, const char* name) noexcept {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int stat(const char* path, struct stat* status) {
  static auto* const real = next(&::stat, "stat");
  return real(look_at(path), status);
}

int stat64(const char* path, struct stat64* status) {
  static auto* const real = next(&::stat64, "stat64");
  return real(look_at(path), status);
}

int access(const char* path, int mode) {
  static auto* const real = next(&::access, "access");
  return real(look_at(path), mode);
}

}  // extern "C"
#pragma GCC visibility pop
