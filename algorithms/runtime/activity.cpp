#include "runtime/activity.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <tutti/detail/clock.hpp>

#include "engine/execution.hpp"
#include "shm/peer_memory.hpp"

namespace tutti::runtime {
namespace {

/// More operations than these are not read: the list may be changing, or be broken.
constexpr std::size_t records_max = 10'000;

/// No communicator has more ranks, but a record that is being written may say so.
constexpr std::uint32_t ranks_max = 1u << 20;

std::uint64_t address_of(const void* object) noexcept {
  return reinterpret_cast<std::uintptr_t>(object);
}

template <class T>
int read_from(std::int32_t process, std::uint64_t at, T& into) noexcept {
  return shm::peek_peer_memory(process, at, reinterpret_cast<std::byte*>(&into), sizeof into);
}

const char* word_of(char state) noexcept {
  switch (state) {
    case 'R':
      return "running";
    case 'S':
    case 'I':
      return "sleeping";
    case 'D':
      return "in a system call";
    case 'T':
      return "stopped";
    case 't':
      return "stopped by a debugger";
    case 'Z':
    case 'X':
      return "dead";
    default:
      return "";
  }
}

/// By the system, "" if it does not say.
std::string state_of(std::int32_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return ::access("/proc/self", F_OK) == 0 ? "gone" : "";
  // Behind the name, which may hold anything.
  const std::size_t end = line.rfind(')');
  return end == std::string::npos || end + 2 >= line.size() ? "" : word_of(line[end + 2]);
}

std::string text_from(const char* text, std::size_t room) {
  return std::string(text, ::strnlen(text, room));
}

/// Reads which message an operation in flight awaits next.
void read_position(std::int32_t process, const OperationRecord& record, SeenOperation& seen) {
  std::uint64_t next = 0;
  // The memory may be something else by now, so that no value of it is taken for granted.
  plan::Action action{};
  std::uint32_t round = 0;
  Rank peer = no_rank;
  const auto read_of_step = [&](std::size_t offset, auto& into) {
    return read_from(process, record.steps + next * sizeof(plan::Step) + offset, into) == 0;
  };
  if (read_from(process, record.next_step, next) != 0 || next >= record.step_count ||
      !read_of_step(offsetof(plan::Step, action), action) ||
      !read_of_step(offsetof(plan::Step, round), round) ||
      !read_of_step(offsetof(plan::Step, peer), peer))
    return;
  seen.round = round;
  const bool waits = action == plan::Action::await || action == plan::Action::await_credit ||
                     action == plan::Action::await_sent;
  if (waits) seen.awaited = peer;
}

SeenOperation seen_of(std::int32_t process, const OperationRecord& record) {
  SeenOperation seen{.communicator = record.communicator,
                     .ordinal = record.ordinal,
                     .rank = record.rank,
                     .rank_count = record.rank_count,
                     .collective = text_from(record.collective, sizeof record.collective),
                     .label = text_from(record.label, sizeof record.label),
                     .is_waiting = record.is_waiting != 0,
                     .round_count = record.round_count};
  std::uint64_t sequence = 0;
  std::uint8_t is_in_flight = 0;
  static_assert(sizeof(engine::Execution::in_flight) == sizeof is_in_flight);
  if (read_from(process, record.sequence, sequence) == 0)
    seen.call =
        (sequence + record.chunk_count - 1) / std::max<std::uint64_t>(record.chunk_count, 1);
  if (read_from(process, record.in_flight, is_in_flight) == 0)
    seen.is_in_flight = is_in_flight != 0;
  seen.count(record);
  if (record.bytes_sent != 0) (void)read_from(process, record.bytes_sent, seen.bytes_sent);
  if (!seen.is_in_flight) return seen;
  read_position(process, record, seen);
  if (seen.is_waiting && record.no_progress_since != 0)
    seen.without_progress =
        std::max(detail::now() - Timeout(record.no_progress_since), Timeout::zero());
  return seen;
}

/// The waits of the communicator of this record, unless they are known.
void read_waits(std::int32_t process, const OperationRecord& record, SeenProcess& seen) {
  const auto is_same = [&](const SeenCommunicator& known) {
    return known.communicator == record.communicator && known.rank == record.rank;
  };
  if (record.waits == 0 || record.rank_count > ranks_max ||
      std::any_of(seen.communicators.begin(), seen.communicators.end(), is_same))
    return;
  std::vector<PeerWait> waits(record.rank_count);
  if (shm::peek_peer_memory(process, record.waits, reinterpret_cast<std::byte*>(waits.data()),
                            waits.size() * sizeof(PeerWait)) == 0)
    seen.communicators.push_back(
        {record.communicator, record.rank, record.rank_count, waited_for(waits)});
}

}  // namespace

void SeenOperation::count(const OperationRecord& record) noexcept {
  calls_finished = call - (is_in_flight && call > 0 ? 1 : 0);
  rounds_finished = calls_finished * record.chunk_count * record.round_count;
  bytes_sent = calls_finished * record.bytes_sent_per_call;
  bytes_read = calls_finished * record.bytes_read_per_call;
}

void OperationRecord::set_label(std::string_view text) noexcept {
  std::size_t length = std::min(text.size(), sizeof label - 1);
  if (length < text.size())  // a character of UTF-8 is not cut
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0u) == 0x80u) --length;
  std::memset(label, 0, sizeof label);
  std::memcpy(label, text.data(), length);
}

Activity::Activity(std::byte* page, const std::uint64_t& completion_errors) noexcept
    : board_(reinterpret_cast<ActivityBoard*>(page + ActivityBoard::offset)) {
  board_->process = static_cast<std::uint64_t>(::getpid());
  board_->newest = 0;
  board_->completion_errors = address_of(&completion_errors);
  std::atomic_ref(board_->layout).store(ActivityBoard::current_layout, std::memory_order_release);
}

void Activity::add(OperationRecord& record, const engine::Execution& execution) noexcept {
  record.chunk_count = execution.chunk_count;
  record.step_count = execution.steps.size();
  record.sequence = address_of(&execution.sequence);
  record.in_flight = address_of(&execution.in_flight);
  record.next_step = address_of(&execution.next);
  record.steps = address_of(execution.steps.data());
  record.next = board_->newest;
  std::atomic_ref(board_->newest).store(address_of(&record), std::memory_order_release);
}

void Activity::remove(OperationRecord& record) noexcept {
  record.magic = 0;  // whoever has just read its address reads no more than that
  std::uint64_t* link = &board_->newest;
  while (*link != 0 && *link != address_of(&record))
    link = &reinterpret_cast<OperationRecord*>(*link)->next;
  if (*link != 0) std::atomic_ref(*link).store(record.next, std::memory_order_release);
}

SeenProcess look_at(std::int32_t process, const std::byte* page, LookFor what) {
  SeenProcess seen{.process = process, .state = state_of(process)};
  ActivityBoard board;
  std::memcpy(&board, page + ActivityBoard::offset, sizeof board);
  if (board.layout != ActivityBoard::current_layout) {
    seen.unreadable = "it has another version of the library";
    return seen;
  }
  std::uint64_t at = board.newest;
  for (std::size_t i = 0; at != 0 && i < records_max; ++i) {
    OperationRecord record;
    if (const int problem = read_from(process, at, record); problem != 0) {
      if (i == 0)
        seen.unreadable = std::string("its memory cannot be read: ") + std::strerror(problem);
      break;
    }
    if (record.magic != OperationRecord::magic_number) break;  // the list has changed meanwhile
    seen.operations.push_back(seen_of(process, record));
    if (what == LookFor::operations_and_waits) read_waits(process, record, seen);
    at = record.next;
  }
  std::reverse(seen.operations.begin(), seen.operations.end());
  std::reverse(seen.communicators.begin(), seen.communicators.end());
  if (board.completion_errors != 0)
    (void)read_from(process, board.completion_errors, seen.completion_errors);
  return seen;
}

std::string name_of(std::string_view collective, std::uint32_t ordinal, std::string_view label) {
  std::string name = std::string(collective) + " #" + std::to_string(ordinal);
  if (!label.empty()) name += " \"" + std::string(label) + "\"";
  return name;
}

}  // namespace tutti::runtime
