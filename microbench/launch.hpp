// What both programs do at the edges of a run: exit statuses, one line for each failure, and who
// prints it.
#pragma once

#include <string>
#include <tutti/status.hpp>

namespace tutti::bench {

inline constexpr int exit_failure = 1;
inline constexpr int exit_usage = 2;
inline constexpr int exit_not_met = 3;  // a bound of --expect

/// Usage, where the user's value is at fault; failure, where the run is.
int exit_status_of(ErrorCode code) noexcept;

/// One line on standard error, whatever `text` contains.
void print_reason(const char* program, const std::string& text);

/// Whether a launcher says that this process is not the first of its job, before MPI is started:
/// what is wrong with the command line is wrong everywhere, and one line says it.
bool is_later_rank_of_job();

}  // namespace tutti::bench
