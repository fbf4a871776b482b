#include "verbs/completion_queues.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tutti/status.hpp>
#include <utility>

namespace tutti::verbs {
namespace {

/// The first queue has 2^15 - 1 entries, those of 103 connections of 254 receives and 64 sends.
/// Only all-to-all exchanges have as many partners, see docs/memory_and_connections.md, so a
/// context usually polls one queue.  Not 2^15, because common adapters add an entry and then round
/// up to a power of two.
constexpr unsigned first_bits = 15;
constexpr unsigned last_bits = 30;  // ibv_create_cq takes an int

}  // namespace

CompletionQueues::CompletionQueues(const Port& port, std::uint32_t entries_each,
                                   ibv_comp_channel* events)
    : port_(port), entries_each_(entries_each), events_(events) {
  assert(entries_each > 0);
  queues_.push_back(make_next());
  only_one_ = queues_.front().handle.get();
}

std::uint32_t CompletionQueues::queues_max() const noexcept {
  return static_cast<std::uint32_t>(std::max(port_.limits.max_cq, 1));
}

std::uint32_t CompletionQueues::entries_of(std::size_t index) const noexcept {
  const std::size_t bits = std::min<std::size_t>(first_bits + index, last_bits);
  const std::uint32_t wanted = std::max((std::uint32_t{1} << bits) - 1, entries_each_);
  return std::min(wanted, static_cast<std::uint32_t>(std::max(port_.limits.max_cqe, 1)));
}

std::uint32_t CompletionQueues::connections_max() const noexcept {
  const auto pairs_max = static_cast<std::uint32_t>(std::max(port_.limits.max_qp, 0));
  std::uint32_t sum = 0;
  for (std::uint32_t index = 0; index < queues_max() && sum < pairs_max; ++index) {
    const std::uint32_t more = entries_of(index) / entries_each_;
    if (more == 0) break;  // nor has a later queue, which is larger only if the device allows it
    sum += std::min(more, pairs_max - sum);
  }
  return sum;
}

std::string CompletionQueues::limits() const {
  return std::to_string(port_.limits.max_cq) + " completion queues of " +
         std::to_string(port_.limits.max_cqe) + " entries";
}

CompletionQueues::Queue CompletionQueues::make_next() const {
  const std::uint32_t entries = entries_of(queues_.size());
  Queue made{.handle = {port_.driver().create_cq(port_.device.get(), static_cast<int>(entries),
                                                 nullptr, events_, 0),
                        {&port_.driver()}},
             .connections_max = entries / entries_each_};
  if (!made.handle)
    throw Error(ErrorCode::limit_exceeded,
                "create_cq of " + std::to_string(entries) + " entries on " + port_.name() + ": " +
                    std::strerror(errno) + " (device limit " + limits() +
                    ", and this context has " + std::to_string(queues_.size()) +
                    "; check ulimit -l)",
                errno);
  return made;
}

std::uint32_t CompletionQueues::add_connection() {
  auto found = std::find_if(queues_.begin(), queues_.end(), [](const Queue& queue) {
    return queue.connections < queue.connections_max;
  });
  if (found == queues_.end()) {
    Queue made = queues_.size() < queues_max() ? make_next() : Queue{};
    if (made.connections_max == 0)
      throw Error(ErrorCode::limit_exceeded, "a connection takes " + std::to_string(entries_each_) +
                                                 " completions, and those of " + port_.name() +
                                                 " are taken: it has at most " + limits() +
                                                 "; use fewer messages per round");
    queues_.push_back(std::move(made));
    only_one_ = nullptr;
    found = queues_.end() - 1;
  }
  ++found->connections;
  return static_cast<std::uint32_t>(found - queues_.begin());
}

void CompletionQueues::remove_connection(std::uint32_t index) noexcept {
  assert(index < queues_.size());
  assert(queues_[index].connections > 0);
  --queues_[index].connections;
}

}  // namespace tutti::verbs
