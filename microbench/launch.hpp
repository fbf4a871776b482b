// What both programs do at the begin and end of a run: exit statuses, one line for each failure,
// and which rank prints it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <tutti/bootstrap.hpp>
#include <tutti/status.hpp>
#include <tutti/types.hpp>

namespace tutti::bench {

inline constexpr int exit_failure = 1;
inline constexpr int exit_usage = 2;
inline constexpr int exit_not_met = 3;  // a bound of --expect

/// exit_usage where a user's value is at fault, exit_failure where the run has failed.
int exit_status_of(ErrorCode code) noexcept;

/// Runs one rank and turns what it throws into its exit status.  Where the user's values are at
/// fault, or all ranks have one error (ErrorOfAll), all ranks throw alike, and a rank that
/// `reports_usage` says so; else each rank reports what it has met.
int exit_status_of(const char* program, Rank self, bool reports_usage,
                   const std::function<int()>& run);
/// The exit status of forked ranks: the greatest of theirs, or `failure` if one was ended by a
/// signal, which is printed.
int exit_status_of(const char* program, std::span<const LocalResult> ranks,
                   int failure = exit_failure);
/// Runs a program, and turns what it throws into a line on standard error and an exit status.
int exit_status_of(const char* program, const std::function<int()>& run);
/// Prints `text` as one line on standard error, even if it contains line ends.
void print_reason(const char* program, const std::string& text);

/// Whether the launcher's environment says that this process is not the first of its job.  It is
/// asked before MPI is started: a wrong command line is wrong on every rank, and one line says so.
bool is_later_rank_of_job();

}  // namespace tutti::bench
