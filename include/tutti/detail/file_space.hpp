// Space of files, those in memory too: the limit on it, and having all of it before it is used.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

namespace tutti::detail {

/// Whether RLIMIT_FSIZE forbids a file of that size: growing one would end the program by SIGXFSZ.
inline bool exceeds_file_limit(std::size_t bytes) noexcept {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
         limit.rlim_cur < bytes;
}

/// Gives a part of the file its pages.  Returns 0 or an errno value.
inline int allocate_file_space(int descriptor, std::size_t offset, std::size_t bytes) noexcept {
  // A signal makes fallocate() undo its work; in parts, the whole gets done in the end.
  constexpr std::size_t part_bytes = std::size_t{2} << 20;
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t part = std::min(part_bytes, bytes - done);
    if (::fallocate(descriptor, 0, static_cast<off_t>(offset + done), static_cast<off_t>(part)) ==
        0)
      done += part;
    else if (errno != EINTR)
      return errno;
  }
  return 0;
}

}  // namespace tutti::detail
