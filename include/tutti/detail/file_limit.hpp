// The limit on the size of files, which holds for files in memory, too.
#pragma once

#include <sys/resource.h>

#include <cstddef>

namespace tutti::detail {

/// Whether RLIMIT_FSIZE forbids a file of that size: growing one would end the program by SIGXFSZ.
inline bool exceeds_file_limit(std::size_t bytes) noexcept {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
         limit.rlim_cur < bytes;
}

}  // namespace tutti::detail
