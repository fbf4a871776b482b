#include "runtime/fork_mark.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <tutti/status.hpp>
#include <vector>

namespace tutti::runtime {

ForkMark::ForkMark()
    : page_(::mmap(nullptr, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)),
                   PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
            static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
  if (!page_)
    throw Error(ErrorCode::system, std::string("mmap of a page: ") + std::strerror(errno), errno);
  if (::madvise(page_.data(), page_.size(), MADV_WIPEONFORK) != 0) {
    const int error = errno;
    throw Error(ErrorCode::system,
                std::string("madvise(MADV_WIPEONFORK): ") + std::strerror(error) +
                    "; it needs Linux 4.14 or later",
                error);
  }
  word_ = new (page_.data()) std::uint32_t(1);
}

void keep_inherited(const void* object) noexcept {
  // Never destroyed, because destructors of static objects run before the leak check does.
  static std::mutex mutex;
  static auto* const kept = new (std::nothrow) std::vector<const void*>;
  const std::lock_guard guard(mutex);
  try {
    if (kept != nullptr) kept->push_back(object);
  } catch (const std::bad_alloc&) {  // only a leak checker would miss it
  }
}

}  // namespace tutti::runtime
