#include "verbs/soft/bounce_answer.hpp"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <new>

#include "verbs/soft/atomic.hpp"
#include "verbs/soft/layout.hpp"
#include "verbs/soft/memory.hpp"
#include "verbs/soft/process.hpp"

namespace tutti::verbs::soft {
namespace {

/// What the initiator asks for.  It is read once.
struct Question {
  ibv_wr_opcode opcode;
  std::uint64_t operand;
  std::uint64_t swap;
  Pieces memory;
};

/// 0, or EACCES: what the initiator found may have been taken down since.
int read_question(const SegmentView& view, const QueuePairEntry& entry, const BounceArea& area,
                  Question& question) {
  question.opcode = static_cast<ibv_wr_opcode>(area.opcode);
  question.operand = area.operand;
  question.swap = area.swap;
  const std::uint32_t needed = is_send(question.opcode) ? std::uint32_t{IBV_ACCESS_LOCAL_WRITE}
                                                        : needed_right(question.opcode);
  const std::uint32_t domain = is_send(question.opcode) && entry.receive_slots == 0
                                   ? view.at<SharedReceiveEntry>(entry.receive_offset)->domain
                                   : entry.domain;
  const std::uint32_t count = std::min(area.pieces_count, scatter_max);
  for (std::uint32_t index = 0; index < count; ++index) {
    const BounceArea::Piece piece = area.pieces[index];
    Region region;
    if (!find_region(view, piece.key, region) || region.domain != domain ||
        (region.access & needed) == 0 || !region.covers(piece.address, piece.bytes))
      return EACCES;
    question.memory.add(reinterpret_cast<void*>(piece.address), piece.bytes);
  }
  const bool fits = is_atomic(question.opcode) ? question.memory.bytes == sizeof(std::uint64_t)
                                               : question.memory.bytes <= BounceArea::data_bytes;
  return fits ? 0 : EINVAL;
}

/// The answer is the former value.  The word behind it is scratch for the new value.
int change_word(int segment, std::size_t data_offset, BounceArea& area, const Question& question) {
  assert(question.memory.bytes == sizeof(std::uint64_t));
  auto* const words = reinterpret_cast<std::uint64_t*>(area.data);
  if (const int error = copy_to_file(segment, data_offset, question.memory)) return error;
  if (!changes(words[0], question.opcode, question.operand, question.swap, words[1])) return 0;
  return copy_from_file(segment, data_offset + sizeof(words[0]), question.memory);
}

/// The kernel copies, because the program may have unmapped what it has registered.
int carry_out(int segment, std::size_t data_offset, BounceArea& area, const Question& question) {
  assert(question.memory.bytes <= BounceArea::data_bytes);
  if (is_atomic(question.opcode)) return change_word(segment, data_offset, area, question);
  return question.opcode == IBV_WR_RDMA_READ
             ? copy_to_file(segment, data_offset, question.memory)
             : copy_from_file(segment, data_offset, question.memory);
}

/// False when there is no question, or when another has the turn at private memory (`again`).
bool answer_question(const Process& process, std::uint32_t index, std::size_t offset, bool& again) {
  const SegmentView view = process.view();
  BounceArea& area = *view.at<BounceArea>(offset);
  // Acquire: the question is there.
  const std::uint64_t requested = area.requested.load(std::memory_order_acquire);
  if (requested == area.answered.load(std::memory_order_relaxed)) return false;
  Question question{};
  int error = read_question(view, view.queue_pair(index), area, question);
  const int segment = process.segment.descriptor();
  const std::size_t data_offset = offset + offsetof(BounceArea, data);
  if (error == 0 && is_atomic(question.opcode)) {
    const std::uint32_t number = queue_pair_number_of(process.id(), index);
    const Turn turn(view.header().atomic_turn, process.token(number));
    again = !turn;
    if (again) return false;
    error = carry_out(segment, data_offset, area, question);
  } else if (error == 0) {
    error = carry_out(segment, data_offset, area, question);
  }
  assert(error >= 0);
  area.error = static_cast<std::uint32_t>(error);
  // Release: the data are where they belong; the initiator may complete the request, and ask again.
  area.answered.store(requested, std::memory_order_release);
  return true;
}

}  // namespace

bool Bounces::answer(Process& process, std::uint32_t index) {
  if (index >= process.queue_pair_slots.ever_taken_count()) return true;  // no such queue pair
  QueuePairEntry& entry = process.view().queue_pair(index);
  const Status status{entry.status.load(std::memory_order_acquire)};
  if (status.state() != IBV_QPS_RTR && status.state() != IBV_QPS_RTS) return true;
  const std::uint64_t offset = entry.bounce.load(std::memory_order_relaxed);
  if (offset == 0 || offset == bounce_refused) return true;
  if (offset == bounce_wanted) {
    std::size_t made = 0;
    try {
      made = process.segment.allocate(sizeof(BounceArea));
    } catch (const std::bad_alloc&) {  // treated as a segment without room
    }
    entry.bounce.store(made != 0 ? made : bounce_refused, std::memory_order_release);
    if (made != 0) queue_pairs_.push_back(index);
    process.count_bounces(queue_pairs_.size());
  } else {
    bool again = false;
    if (!answer_question(process, index, offset, again)) return !again;
  }
  // The initiator's program may sleep until there is a completion.
  process.connections.kick(process_id_of(status.destination()));
  return true;
}

bool Bounces::answer_all(Process& process) {
  bool all = true;
  for (std::uint32_t index = 0; index < process.queue_pair_slots.ever_taken_count(); ++index)
    all &= answer(process, index);
  return all;
}

void Bounces::answer(Process& process) {
  // A copy that has to be tried again waits for the helper thread, or for the next poll.
  for (const std::uint32_t index : queue_pairs_) (void)answer(process, index);
}

void Bounces::remove(Process& process, std::uint32_t index) {
  // Relaxed, here and below: nobody else reads it before the next status, stored with release.
  std::atomic<std::uint64_t>& place = process.view().queue_pair(index).bounce;
  const std::uint64_t offset = place.exchange(0, std::memory_order_relaxed);
  if (offset <= bounce_refused) return;
  process.segment.free(offset);
  std::erase(queue_pairs_, index);
  process.count_bounces(queue_pairs_.size());
}

void reset_bounce(const SegmentView& segment, QueuePairEntry& entry) noexcept {
  const std::uint64_t offset = entry.bounce.load(std::memory_order_relaxed);
  if (offset <= bounce_refused) return entry.bounce.store(0, std::memory_order_relaxed);
  BounceArea& area = *segment.at<BounceArea>(offset);
  area.requested.store(0, std::memory_order_relaxed);
  area.answered.store(0, std::memory_order_relaxed);
}

}  // namespace tutti::verbs::soft
