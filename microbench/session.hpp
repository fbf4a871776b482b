// One run of tutti-bench on one rank: from the exchange to the report.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "microbench/cases.hpp"
#include "microbench/options.hpp"

namespace tutti::bench {

/// Measures, checks, and prints on rank 0.  Collective.  Returns the exit status: 0; 1 if a result
/// was wrong; 3 on rank 0 if a bound of --expect is not met.  Throws Error, alike on all ranks
/// where the user's values are at fault, and RunFailed.
int run_session(const Options& options, const Launch& launch);

struct CloseFile {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

/// Opens rank 0's file for `option`, before anything is measured: a bad name must not cost a run.
/// Nothing for an empty name.  Collective.  Throws Error{invalid_argument}, alike on all ranks.
File open_file(const char* option, const std::string& name, const char* mode, const char* wanted,
               Exchange& exchange);

/// Throws Error{unsupported} if a network is to be emulated and the device is none of software.
void refuse_fabric_of_real_device(const RankOptions& options, const std::string& device,
                                  bool is_software);

template <class Report>
std::string text_of(const Report& report, Format format) {
  switch (format) {
    case Format::table:
      return as_table(report);
    case Format::json:
      return as_json(report.rows);
    case Format::csv:
      return as_csv(report.rows);
  }
  return {};
}

/// The text of a report.  Throws RunFailed if it cannot be written as a whole.
void write(const std::string& text, std::FILE* file);

}  // namespace tutti::bench
