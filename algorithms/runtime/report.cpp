#include "runtime/report.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "runtime/joined_fabric.hpp"
#include "runtime/operation.hpp"
#include "tune/json_text.hpp"
#include "verbs/completion_words.hpp"

namespace tutti::runtime {
namespace {

/// An object of JSON, as text.
class Json {
 public:
  template <class Number>
  requires(std::is_arithmetic_v<Number> &&
           !std::is_same_v<Number, bool>) void add(std::string_view key, Number value) {
    char text[32];  // as no locale writes it
    add_text(key, std::string(text, std::to_chars(text, text + sizeof text, value).ptr));
  }
  void add(std::string_view key, bool value) { add_text(key, value ? "true" : "false"); }
  void add(std::string_view key, std::string_view value) {
    add_text(key, tune::json_string(value));
  }
  void add(std::string_view key, const char* value) { add(key, std::string_view(value)); }
  void add(std::string_view key, const std::vector<Json>& values) {
    std::string list;
    for (const Json& value : values) list += (list.empty() ? "" : ",\n") + value.text();
    add_text(key, "[" + list + "]");
  }
  void add(std::string_view key, const Json& value) { add_text(key, value.text()); }
  std::string text() const { return "{" + members_ + "}"; }

 private:
  void add_text(std::string_view key, const std::string& value) {
    members_ += (members_.empty() ? "" : ", ") + tune::json_string(key) + ": " + value;
  }
  std::string members_;
};

std::string seconds_text(Timeout time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", static_cast<double>(time.count()) / 1e9);
  return text;
}

double seconds_of(Timeout time) noexcept {
  return static_cast<double>(time.count()) / 1e9;
}

std::string name_of(const SeenOperation& seen) {
  return runtime::name_of(seen.collective, seen.ordinal, seen.label);
}

/// Where a call is, and whom it waits for.
std::string position_text(const SeenOperation& seen) {
  std::string text;
  if (seen.round)
    text += ", round " + std::to_string(*seen.round) + " of " + std::to_string(seen.round_count);
  if (seen.awaited != no_rank)
    text += ", needs rank " + std::to_string(index_of(seen.awaited)) + " next";
  if (seen.without_progress) text += ", no progress for " + seconds_text(*seen.without_progress);
  return text;
}

/// What the finished calls have done; empty if there are none.
std::string counts_text(const SeenOperation& seen) {
  if (seen.calls_finished == 0) return "";
  return "    finished: " + std::to_string(seen.calls_finished) + " calls, " +
         std::to_string(seen.rounds_finished) + " rounds, " + std::to_string(seen.bytes_sent) +
         " bytes sent, " + std::to_string(seen.bytes_read) + " bytes read\n";
}

std::string text_of(const SeenOperation& seen) {
  const std::string text = name_of(seen) + ", call " + std::to_string(seen.call);
  if (!seen.is_in_flight) return text + ": finished";
  return text + (seen.is_waiting ? ": waiting" : ": in flight") + position_text(seen);
}

/// What a rank of this node that is waited for was doing when it was looked at.
std::string activity_text(const SeenProcess& there, const SeenOperation& ours) {
  if (there.state == "gone" || there.state == "dead") return "its process has ended";
  if (!there.unreadable.empty()) return there.unreadable;
  const auto is_ours = [&](const SeenOperation& one) {
    return one.communicator == ours.communicator && one.ordinal == ours.ordinal;
  };
  const auto same = std::find_if(there.operations.begin(), there.operations.end(), is_ours);
  if (same == there.operations.end()) return "has this operation no more";
  if (same->call == ours.call && same->is_in_flight)
    return "in the same call" + position_text(*same);
  if (same->call >= ours.call) return "has finished this call";
  std::string text = "has not started it, " + std::to_string(same->call) + " calls so far";
  const auto waits =
      std::find_if(there.operations.begin(), there.operations.end(),
                   [](const SeenOperation& one) { return one.is_in_flight && one.is_waiting; });
  if (waits != there.operations.end()) return text + "; " + text_of(*waits);
  // It may test instead of waiting.
  const auto flies = std::find_if(there.operations.begin(), there.operations.end(),
                                  [](const SeenOperation& one) { return one.is_in_flight; });
  return text + (flies == there.operations.end() ? "; nothing is in flight there"
                                                 : "; " + text_of(*flies));
}

/// A message of an operation that has come from a rank, and belongs to the call that this rank is
/// in or, if it is in none, to its next one.
struct Sign {
  std::uint64_t call;
  std::uint32_t round;
};

/// The last message that has come from `rank`.  Other nodes cannot be looked at, but each message
/// from there says that its sender has begun that call.
std::optional<Sign> last_sign_of(const Operation::Implementation& operation, Rank rank) {
  const engine::Execution& execution = operation.execution;
  if (operation.ring() || operation.stale()) return std::nullopt;
  const bool is_here = execution.in_flight;
  const std::uint64_t sequence = execution.sequence + (is_here ? 0 : 1);
  const JoinedFabric fabric{operation.communicator.context.fabric};
  std::optional<Sign> last;
  for (std::size_t i = 0; i < execution.steps.size(); ++i) {
    const plan::Step& step = execution.steps[i];
    const bool awaits =
        step.action == plan::Action::await || step.action == plan::Action::await_credit;
    if (!awaits || step.peer != rank) continue;
    const bool is_taken = is_here && i < execution.next;
    if (!is_taken && !fabric.arrived(operation.channel, sequence & 1, step.slot)) continue;
    const std::uint64_t call = (sequence + execution.chunk_count - 1) / execution.chunk_count;
    last = {.call = call, .round = std::max(step.round, last ? last->round : 0)};
  }
  return last;
}

/// What messages say of a rank of another node that `operation` waits for.
std::string signs_text(const Operation::Implementation& operation, Rank rank) {
  const char* const of_what = operation.execution.chunk_count > 1 ? "chunk" : "call";
  const std::optional<Sign> here = last_sign_of(operation, rank);
  std::string text = here ? "it has begun this " + std::string(of_what) + ": a message of round " +
                                std::to_string(here->round) +
                                " has come from it, but not all that are needed"
                          : "no message of this " + std::string(of_what) + " has come from it";
  constexpr std::size_t others_max = 4;
  std::size_t others = 0;
  for (const Operation::Implementation* other : operation.communicator.operations) {
    if (other == &operation || others == others_max) continue;
    const std::optional<Sign> sign = last_sign_of(*other, rank);
    if (!sign) continue;
    ++others;
    text += "; it has begun " + runtime::name_of(other->name, other->ordinal, other->record.label) +
            ", call " + std::to_string(sign->call);
  }
  return text;
}

/// A rank that an operation waits for.
struct Missing {
  Rank rank;
  std::optional<SeenProcess> there;  // of this node
  std::string signs = {};            // of another node
};

struct Reported {
  const Operation::Implementation* operation;
  SeenOperation seen;
  std::vector<Missing> missing;
};

Reported reported(const Operation::Implementation& operation) {
  const engine::Execution& execution = operation.execution;
  const OperationRecord& record = operation.record;
  Reported result{.operation = &operation,
                  .seen = {.communicator = record.communicator,
                           .ordinal = operation.ordinal,
                           .rank = record.rank,
                           .rank_count = record.rank_count,
                           .collective = operation.name,
                           .label = record.label,
                           .call = execution.call(),
                           .is_in_flight = execution.in_flight,
                           .is_waiting = record.is_waiting != 0,
                           .round_count = record.round_count},
                  .missing = {}};
  result.seen.count(record);
  if (operation.ring()) result.seen.bytes_sent = operation.ring()->bytes_sent();
  if (!execution.in_flight) return result;
  if (!execution.steps.empty()) result.seen.round = operation.round();
  const bool stands = operation.stands_at == operation.communicator.context.position();
  if (record.no_progress_since != 0 && stands)
    result.seen.without_progress =
        std::max(detail::now() - Timeout(record.no_progress_since), Timeout::zero());
  for (const Rank rank : operation.missing_ranks()) {
    const NeighbourMapping& theirs = operation.communicator.neighbours.mappings[index_of(rank)];
    Missing missing{rank, std::nullopt};
    if (theirs.mapping != nullptr)
      missing.there = look_at(theirs.card.process, theirs.mapping->data(), LookFor::operations);
    else
      missing.signs = signs_text(operation, rank);
    result.missing.push_back(std::move(missing));
  }
  return result;
}

std::string text_of(const Reported& one) {
  std::string text = "  " + one.operation->describe();
  if (one.seen.without_progress)
    text += ", no progress for " + seconds_text(*one.seen.without_progress);
  text += "\n" + counts_text(one.seen);
  for (const Missing& missing : one.missing) {
    text += "    rank " + std::to_string(index_of(missing.rank));
    if (!missing.there) {
      text += ": of another node; " + missing.signs + "\n";
      continue;
    }
    text += " (process " + std::to_string(missing.there->process) +
            (missing.there->state.empty() ? "" : ", " + missing.there->state) +
            "): " + activity_text(*missing.there, one.seen) + "\n";
  }
  return text;
}

Json json_of(const SeenOperation& seen) {
  Json json;
  json.add("collective", seen.collective);
  json.add("number", seen.ordinal);
  if (!seen.label.empty()) json.add("label", seen.label);
  json.add("call", seen.call);
  json.add("in_flight", seen.is_in_flight);
  json.add("waiting", seen.is_in_flight && seen.is_waiting);
  json.add("calls_finished", seen.calls_finished);
  json.add("rounds_finished", seen.rounds_finished);
  json.add("bytes_sent", seen.bytes_sent);
  json.add("bytes_read", seen.bytes_read);
  if (seen.round) json.add("round", *seen.round);
  if (seen.round) json.add("rounds", seen.round_count);
  if (seen.awaited != no_rank) json.add("next_rank", index_of(seen.awaited));
  if (seen.without_progress) json.add("no_progress_s", seconds_of(*seen.without_progress));
  return json;
}

std::vector<Json> json_of(std::span<const WaitedFor> ranks) {
  std::vector<Json> list;
  for (const WaitedFor& one : ranks) {
    Json json;
    json.add("rank", index_of(one.rank));
    json.add("total_s", static_cast<double>(one.wait.total_ns) / 1e9);
    json.add("longest_s", static_cast<double>(one.wait.longest_ns) / 1e9);
    json.add("times_last", one.wait.times_last);
    list.push_back(std::move(json));
  }
  return list;
}

void add(Json& json, const SeenProcess& seen) {
  json.add("process", seen.process);
  if (!seen.state.empty()) json.add("state", seen.state);
  if (!seen.unreadable.empty()) json.add("unreadable", seen.unreadable);
  std::vector<Json> operations;
  for (const SeenOperation& operation : seen.operations) {
    Json one = json_of(operation);
    one.add("rank", operation.rank);
    one.add("ranks", operation.rank_count);
    operations.push_back(std::move(one));
  }
  json.add("operations", operations);
}

Json json_of(const Reported& one) {
  Json json = json_of(one.seen);
  json.add("algorithm", one.operation->plan.algorithm);
  if (!one.seen.is_in_flight) return json;
  json.add("text", one.operation->describe());
  if (one.operation->ring()) return json;  // its text says which chunks are missing
  std::vector<Json> missing;
  for (const Missing& rank : one.missing) {
    Json known;
    known.add("rank", index_of(rank.rank));
    known.add("same_node", rank.there.has_value());
    if (rank.there) {
      known.add("seen", activity_text(*rank.there, one.seen));
      add(known, *rank.there);
    } else {
      known.add("seen", rank.signs);
    }
    missing.push_back(std::move(known));
  }
  json.add("missing", missing);
  return json;
}

std::uint64_t completion_errors_of(const Communicator::Implementation& communicator) {
  return communicator.context.fabric.connections().completion_errors();
}

std::string errors_text(std::uint64_t count) {
  return count == 0 ? "" : "  completions with an error: " + std::to_string(count) + "\n";
}

/// A rank that leaves in good order may break connections, too, which is no failure.
bool has_completion_error(const Communicator::Implementation& communicator) {
  return communicator.failed() && communicator.completion_error.has_value();
}

/// In whole sentences what the failure has as a line; empty if no completion had an error.
std::string completion_text(const Communicator::Implementation& communicator) {
  if (!has_completion_error(communicator)) return "";
  const verbs::TransportFailure& error = *communicator.completion_error;
  const verbs::CompletionWords words = verbs::words_of(error.completion);
  return "  completion of a " + std::string(error.is_receive ? "receive" : "write") + ": rank " +
         std::to_string(index_of(communicator.rank_of(error.process))) + ": " + words.meaning +
         ": " + words.name + " (" + std::to_string(static_cast<unsigned>(error.completion)) +
         "), vendor error " + std::to_string(error.vendor_error) + "\n    hint: " + words.hint +
         "\n";
}

Json json_of(const verbs::TransportFailure& error) {
  const verbs::CompletionWords words = verbs::words_of(error.completion);
  Json json;
  json.add("of", error.is_receive ? "receive" : "write");
  json.add("status", static_cast<unsigned>(error.completion));
  json.add("name", words.name);
  json.add("vendor_error", error.vendor_error);
  json.add("meaning", words.meaning);
  json.add("hint", words.hint);
  return json;
}

std::string header_text(const Communicator::Implementation& communicator) {
  const std::size_t self = index_of(communicator.exchange.self());
  const std::uint32_t nodes = communicator.neighbours.nodes.node_count;
  return "tutti: rank " + std::to_string(self) + " of " +
         std::to_string(communicator.exchange.rank_count()) + ", node " +
         std::to_string(index_of(communicator.neighbours.nodes.node[self])) + " of " +
         std::to_string(nodes) + ": " +
         (communicator.failed() ? communicator.failure.text : "no failure") + "\n" +
         completion_text(communicator) + errors_text(completion_errors_of(communicator));
}

}  // namespace

std::string report_of(const Communicator::Implementation& communicator, ReportFormat format) {
  std::vector<Reported> all;
  for (const Operation::Implementation* operation : communicator.operations)
    all.push_back(reported(*operation));
  if (format == ReportFormat::text) {
    std::string text = header_text(communicator);
    for (const Reported& one : all) text += text_of(one);
    return text + text_of(waited_for(communicator.waits), "  waited for ");
  }
  const std::size_t self = index_of(communicator.exchange.self());
  Json json;
  json.add("rank", self);
  json.add("ranks", communicator.exchange.rank_count());
  json.add("node", index_of(communicator.neighbours.nodes.node[self]));
  json.add("nodes", communicator.neighbours.nodes.node_count);
  json.add("status", tutti::name_of(communicator.failure.status));
  if (communicator.failed()) json.add("failure", communicator.failure.text);
  if (has_completion_error(communicator)) {
    Json error = json_of(*communicator.completion_error);
    error.add("rank", index_of(communicator.rank_of(communicator.completion_error->process)));
    json.add("completion", error);
  }
  json.add("completion_errors", completion_errors_of(communicator));
  json.add("waited_for", json_of(waited_for(communicator.waits)));
  std::vector<Json> operations;
  operations.reserve(all.size());
  for (const Reported& one : all) operations.push_back(json_of(one));
  json.add("operations", operations);
  return json.text() + "\n";
}

void print_stragglers(const Communicator::Implementation& communicator) noexcept try {
  const std::vector<WaitedFor> ranks = waited_for(communicator.waits);
  const std::string head = "tutti: communicator " + std::to_string(communicator.number) +
                           ", rank " + std::to_string(index_of(communicator.exchange.self())) +
                           " of " + std::to_string(communicator.exchange.rank_count()) +
                           " waited for";
  // One call, so that the lines of several ranks do not mix.
  std::fputs((head + (ranks.empty() ? " no other rank\n" : "\n" + text_of(ranks, "  "))).c_str(),
             stderr);
} catch (const std::exception& error) {
  std::fprintf(stderr, "tutti: no table of stragglers: %s\n", error.what());
}

std::string text_of(const SeenProcess& seen) {
  std::string text =
      "process " + std::to_string(seen.process) + (seen.state.empty() ? "" : ", " + seen.state) +
      ": " +
      (seen.unreadable.empty() ? std::to_string(seen.operations.size()) + " operations"
                               : seen.unreadable) +
      "\n";
  text += errors_text(seen.completion_errors);
  for (const SeenOperation& one : seen.operations)
    text += "  rank " + std::to_string(one.rank) + " of " + std::to_string(one.rank_count) + ": " +
            text_of(one) + "\n" + counts_text(one);
  for (const SeenCommunicator& one : seen.communicators)
    text += text_of(one.waited_for, "  rank " + std::to_string(one.rank) + " of " +
                                        std::to_string(one.rank_count) + " waited for ");
  return text;
}

std::string json_of(const SeenProcess& seen) {
  Json json;
  add(json, seen);
  json.add("completion_errors", seen.completion_errors);
  std::vector<Json> communicators;
  for (const SeenCommunicator& one : seen.communicators) {
    Json known;
    known.add("rank", one.rank);
    known.add("ranks", one.rank_count);
    known.add("waited_for", json_of(one.waited_for));
    communicators.push_back(std::move(known));
  }
  json.add("communicators", communicators);
  return json.text() + "\n";
}

}  // namespace tutti::runtime
