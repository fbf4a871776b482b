#include "microbench/launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "microbench/subject.hpp"
#include "microbench/together.hpp"

namespace tutti::bench {
namespace {

/// The launcher ends the job when the first rank ends.  Later ranks wait, so that the first to end
/// is the one that has printed the reason.
constexpr auto time_of_another = std::chrono::milliseconds(200);

}  // namespace

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

int exit_status_of(const char* program, Rank self, bool reports_usage,
                   const std::function<int()>& run) {
  const auto report = [&](const char* text) {
    print_reason(program, fmt::format("rank {}: {}", index_of(self), text));
  };
  try {
    return run();
  } catch (const ErrorOfAll& error) {
    if (reports_usage)
      print_reason(program, error.what());
    else
      std::this_thread::sleep_for(time_of_another);
    return exit_status_of(error.code());
  } catch (const Error& error) {
    const int status = exit_status_of(error.code());
    if (status != exit_usage)
      report(error.what());
    else if (reports_usage)
      print_reason(program, error.what());
    return status;
  } catch (const std::exception& failure) {  // RunFailed, or what nobody expects
    report(failure.what());
    return exit_failure;
  }
}

int exit_status_of(const char* program, std::span<const LocalResult> ranks, int failure) {
  int status = 0;
  bool was_ended = false;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    status = std::max(status, ranks[rank].exit_status);
    if (ranks[rank].signal == 0) continue;
    print_reason(program, fmt::format("rank {} was ended by signal {}", rank, ranks[rank].signal));
    was_ended = true;
  }
  return was_ended ? failure : status;
}

int exit_status_of(const char* program, const std::function<int()>& run) {
  try {
    return run();
  } catch (const Error& error) {
    if (!is_later_rank_of_job())
      print_reason(program, error.what());
    else
      std::this_thread::sleep_for(time_of_another);
    return exit_status_of(error.code());
  } catch (const std::exception& error) {
    print_reason(program, error.what());
    return exit_failure;
  }
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
