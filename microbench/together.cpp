#include "microbench/together.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace tutti::bench {
namespace {

struct Verdict {
  bool failed = false;
  ErrorCode code = ErrorCode::system;
  int system_errno = 0;
};

/// Sent only after a failure.  It is long, because paths may be, and the remedy comes last.
struct Reason {
  char text[4096] = {};
};

}  // namespace

std::string share(Exchange& exchange, const std::string& text) {
  const std::uint64_t bytes = gather(exchange, std::uint64_t{text.size()}).front();
  std::string mine = exchange.self() == Rank{0} ? text : std::string(bytes, '\0');
  std::string all(bytes * exchange.rank_count(), '\0');
  if (bytes > 0)
    exchange.allgather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)),
                       setup_timeout);
  return all.substr(0, bytes);
}

void together(Exchange& exchange, const std::function<void()>& step) {
  Verdict mine;
  Reason reason;
  try {
    step();
  } catch (const Error& error) {
    mine.failed = true;
    mine.code = error.code();
    mine.system_errno = error.system_errno();
    std::strncpy(reason.text, error.what(), sizeof reason.text - 1);
  } catch (const std::bad_alloc&) {
    mine.failed = true;
    mine.code = ErrorCode::limit_exceeded;
    std::strncpy(reason.text, "there is not enough memory", sizeof reason.text - 1);
  }
  const std::vector<Verdict> all = gather(exchange, mine);
  const auto first =
      std::find_if(all.begin(), all.end(), [](const Verdict& one) { return one.failed; });
  if (first == all.end()) return;
  // An error that all ranks met alike needs no rank's name.
  const std::vector<Reason> reasons = gather(exchange, reason);
  const std::string text = reasons[static_cast<std::size_t>(first - all.begin())].text;
  const bool alike = std::all_of(reasons.begin(), reasons.end(),
                                 [&](const Reason& one) { return text == one.text; });
  throw ErrorOfAll(first->code,
                   alike ? text : fmt::format("rank {}: {}", first - all.begin(), text),
                   first->system_errno);
}

}  // namespace tutti::bench
