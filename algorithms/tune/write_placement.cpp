#include "tune/write_placement.hpp"

#include <algorithm>

#include "tune/json_text.hpp"
#include "tune/tuning.hpp"
#include "tune/tuning_file.hpp"

namespace tutti::tune {
namespace {

Evidence evidence_of(std::uint64_t seen, std::uint64_t wrong) noexcept {
  if (wrong > 0) return Evidence::violated;
  if (seen == 0) return Evidence::none;
  return seen < placed_writes_needed ? Evidence::too_little : Evidence::holds;
}

/// Soft-RoCE says 0.0.0 of every kernel, and some systems do not name their CPUs.
bool is_known(const std::string& text) noexcept {
  return text != "unknown" && text.find_first_not_of("0. ") != std::string::npos;
}

std::string words_of(std::uint64_t seen, std::uint64_t wrong, const char* what, const char* good,
                     const char* bad) {
  if (seen == 0) return std::string("no ") + what + " were seen to come";
  const std::string text = std::to_string(seen) + " " + what + " were seen to come, ";
  if (wrong > 0) return text + std::to_string(wrong) + " of them " + bad;
  return text + "all of them " + good +
         (seen < placed_writes_needed
              ? ", but " + std::to_string(placed_writes_needed) + " are needed"
              : "");
}

}  // namespace

WritePlacement sum_of(const WritePlacement& one, const WritePlacement& other) noexcept {
  const auto sum = [](std::uint64_t left, std::uint64_t right) {
    return std::min(left + right, placed_writes_max);
  };
  return {.lines = sum(one.lines, other.lines),
          .torn_lines = sum(one.torn_lines, other.torn_lines),
          .words = sum(one.words, other.words),
          .early_words = sum(one.early_words, other.early_words)};
}

Evidence evidence_for_lines(const WritePlacement& seen) noexcept {
  return evidence_of(seen.lines, seen.torn_lines);
}
Evidence evidence_for_order(const WritePlacement& seen) noexcept {
  return evidence_of(seen.words, seen.early_words);
}

std::string words_on_lines(const WritePlacement& seen) {
  return words_of(seen.lines, seen.torn_lines, "lines", "whole", "torn");
}
std::string words_on_order(const WritePlacement& seen) {
  return words_of(seen.words, seen.early_words, "words", "after what was written earlier",
                  "before what was written earlier");
}

std::string why_ranks_differ(const std::vector<Fingerprint>& of_rank) {
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank)
    if (const std::string why = why_placement_differs(of_rank[0], of_rank[rank]); !why.empty())
      return rank == 0 ? why : "on rank 0 and rank " + std::to_string(rank) + " it differs: " + why;
  return {};
}

std::string why_placement_differs(const Fingerprint& of_file, const Fingerprint& of_machine) {
  if (of_file.device.empty() || of_file.cpu.empty())
    return "it does not say on which device and CPU it was made";
  if (!is_known(of_file.cpu) || !is_known(of_machine.cpu))
    return "the system does not name the CPU, so that it cannot be told from others";
  if (const Applicability found = applicability(of_file, of_machine); found.applies == Applies::no)
    return found.why;
  if (!is_known(of_file.firmware) || !is_known(of_machine.firmware))
    return "the device has no firmware version, by which it could be told from others";
  if (of_file.firmware != of_machine.firmware)
    return "the firmware was " + quotation_of(of_file.firmware) + ", here it is " +
           quotation_of(of_machine.firmware);
  if (of_file.cpu != of_machine.cpu)
    return "the CPU was " + quotation_of(of_file.cpu) + ", here it is " +
           quotation_of(of_machine.cpu);
  return {};
}

}  // namespace tutti::tune
