#include "verbs/lock_limit.hpp"

#include <sys/resource.h>

#include <cassert>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <tutti/status.hpp>

namespace tutti::verbs {
namespace {

constexpr unsigned ipc_lock = 14;  // CAP_IPC_LOCK of <linux/capability.h>

const char* const remedy =
    "raise it (ulimit -l unlimited, or memlock in /etc/security/limits.conf) or lower "
    "TUTTI_ARENA_BYTES";

}  // namespace

bool locks_memory(const Port& port) noexcept {
  return &port.driver() != &soft_driver();
}

int access_on_demand(const Port& port) noexcept {
  return locks_memory(port) ? 0 : IBV_ACCESS_ON_DEMAND;
}

std::string LockLimit::text() const {
  if (bytes == SIZE_MAX) return "RLIMIT_MEMLOCK is unlimited";
  return "RLIMIT_MEMLOCK is " + std::to_string(bytes) + " bytes" +
         (locked == 0 ? "" : ", of which " + std::to_string(locked) + " are locked");
}

LockLimit lock_limit(const std::string& status) {
  LockLimit result{.bytes = SIZE_MAX};
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    result.bytes = limit.rlim_cur;
  result.is_exempt = true;  // unless the file says otherwise; without it the registration decides
  std::ifstream file(status);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t number = 0;
    words >> name;
    if (name == "VmPin:" && words >> number)
      result.locked = number * 1024;
    else if (name == "CapEff:" && words >> std::hex >> number)
      result.is_exempt = (number >> ipc_lock & 1) != 0;
  }
  return result;
}

void check_lockable(const Port& port, std::size_t bytes, const std::string& what) {
  if (locks_memory(port)) check_lockable(port, bytes, what, lock_limit());
}

void check_lockable(const Port& port, std::size_t bytes, const std::string& what,
                    const LockLimit& limit) {
  assert(bytes > 0);
  if (limit.allows(bytes)) return;
  throw Error(ErrorCode::limit_exceeded,
              limit.text() + ", and " + port.name() + " needs " + std::to_string(bytes) +
                  " more for " + what + ": " + remedy,
              ENOMEM);
}

std::string explain_registration(const Port& port, int error) {
  if (error != ENOMEM || !locks_memory(port)) return {};
  const LockLimit limit = lock_limit();
  if (limit.bytes == SIZE_MAX)
    return "; " + limit.text() + ": the kernel or the device has no room, lower TUTTI_ARENA_BYTES";
  return "; " + limit.text() +
         (limit.is_exempt ? ", which CAP_IPC_LOCK does not lift in a user namespace" : "") + ": " +
         remedy;
}

RegionHandle register_on(const Port& port, ibv_pd* domain, std::byte* memory, std::size_t bytes,
                         int access, const std::string& what) {
  RegionHandle region(port.driver().reg_mr(domain, memory, bytes, access), {&port.driver()});
  const int error = errno;
  if (!region)
    throw Error(error == ENOMEM ? ErrorCode::limit_exceeded : ErrorCode::system,
                "registering " + what + " on " + port.name() + ": " + std::strerror(error) +
                    explain_registration(port, error),
                error);
  return region;
}

}  // namespace tutti::verbs
