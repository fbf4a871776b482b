#include "microbench/launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tutti::bench {

int exit_status_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::mismatch:
    case ErrorCode::unsupported:
    case ErrorCode::limit_exceeded:
    case ErrorCode::no_device:
      return exit_usage;
    case ErrorCode::timed_out:
    case ErrorCode::peer_failed:
    case ErrorCode::system:
      break;
  }
  return exit_failure;
}

void print_reason(const char* program, const std::string& text) {
  std::string line = fmt::format("{}: {}", program, text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  // One write, so that the lines of several ranks do not mix.
  std::fwrite(line.data(), 1, line.size(), stderr);
}

bool is_later_rank_of_job() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"})
    if (const char* rank = std::getenv(name)) return std::strcmp(rank, "0") != 0;
  return false;
}

}  // namespace tutti::bench
