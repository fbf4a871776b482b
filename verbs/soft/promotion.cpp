#include "verbs/soft/promotion.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstdint>

#include "tutti/detail/file_space.hpp"
#include "verbs/soft/backing.hpp"

namespace tutti::verbs::soft {
namespace {

bool write_all(int file, const std::byte* data, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t written = ::pwrite(file, data + done, bytes - done, static_cast<off_t>(done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    done += static_cast<std::size_t>(written);
  }
  return true;
}

}  // namespace

detail::Descriptor promote(const void* address, std::size_t bytes, const char*& reason) {
  assert(bytes != 0);
  const auto page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t first = start / page_bytes * page_bytes;
  const std::uintptr_t last = (start + bytes + page_bytes - 1) / page_bytes * page_bytes;
  reason = "it is not anonymous private memory of its own";
  if (last <= first) return {};
  if (const MappedRange range = look_up_range(first, last); !range.mapped || !range.plain)
    return {};
  const std::size_t size = last - first;
  auto* const pages = reinterpret_cast<std::byte*>(first);
  detail::Descriptor file(::memfd_create("tutti-promoted", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  reason = "the system has no memory, or no descriptor, for a file";
  // Nothing else is done between the copy and the exchange, so this thread loses no write of its
  // own.
  if (!file || detail::exceeds_file_limit(size) ||
      ::ftruncate(file.get(), static_cast<off_t>(size)) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
      !write_all(file.get(), pages, size) ||
      ::mmap(pages, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(), 0) != pages)
    return {};
  reason = nullptr;
  return file;
}

}  // namespace tutti::verbs::soft
