#include "bootstrap/describe.hpp"

#include <algorithm>
#include <cstdio>

namespace tutti::bootstrap {

namespace {
// The text of a Failure has 256 bytes, and nobody reads the seventeenth number.
constexpr std::size_t named_max = 16;
}  // namespace

std::string name_ranks(std::span<const Rank> ranks) {
  if (ranks.empty()) return "no rank";
  const std::size_t named = std::min(ranks.size(), named_max);
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t position = 0; position < named; ++position) {
    if (position > 0) text += position + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(index_of(ranks[position]));
  }
  if (named < ranks.size()) text += " and " + std::to_string(ranks.size() - named) + " more";
  return text;
}

std::string name_timeout(Timeout timeout) {
  if (timeout == wait_forever) return "forever";
  const double milliseconds = std::chrono::duration<double, std::milli>(timeout).count();
  char text[32];
  if (milliseconds < 1000) {
    std::snprintf(text, sizeof text, "%.3g ms", milliseconds);
  } else {
    std::snprintf(text, sizeof text, "%.6g s", milliseconds / 1000);
  }
  return text;
}

std::string name_contribution(std::uint64_t bytes, bool are_records) {
  return (are_records ? "records of " : "") + std::to_string(bytes) + " bytes";
}

std::string name_incident(const Incident& incident) {
  const std::string rank = "rank " + std::to_string(index_of(incident.rank));
  switch (incident.kind) {
    case Incident::Kind::none:
      return "nothing has happened";
    case Incident::Kind::died:
      return rank + " has died";
    case Incident::Kind::aborted:
      return rank + " has aborted";
    case Incident::Kind::left:
      return rank + " has left while it was needed";
    case Incident::Kind::silent:
      return rank + " does not answer";
  }
  return rank + " has failed";
}

}  // namespace tutti::bootstrap
