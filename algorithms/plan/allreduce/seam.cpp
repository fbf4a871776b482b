// See seam.hpp.
#include "plan/allreduce/seam.hpp"

#include <cassert>

namespace tutti::plan {

void SeamWriter::put(std::uint64_t offset, std::uint16_t slot, const Partial& from) {
  steps_.put(rank_ahead(plan_.self, offset, plan_.rank_count), slot, payloads(from.ranks),
             from.low);
}

void SeamWriter::receive(std::uint64_t offset, std::uint16_t slot, std::uint64_t length,
                         Partial& into, std::uint32_t without_last) {
  const Rank peer = rank_behind(plan_.self, offset, plan_.rank_count);
  const Partial piece{
      .ranks = {rank_behind(peer, without_last, plan_.rank_count), length - without_last},
      .low = slot_register(slot, 0),
      .high = slot_register(slot, 1)};
  steps_.await(peer, slot, payloads(piece.ranks));
  join(into, piece);
}

// The high part is everything left of the seam between P-1 and 0.
void SeamWriter::join(Partial& into, const Partial& left) {
  if (into.ranks.length == 0) {
    copy(left, into);
    return;
  }
  if (wraps(into.ranks)) {
    steps_.combine(left.low, into.high);
  } else if (begins_at_seam(into.ranks)) {
    steps_.copy(left.low, into.high);
  } else {
    steps_.combine(left.low, into.low);
    if (wraps(left.ranks)) steps_.copy(left.high, into.high);
  }
  into.ranks.length += left.ranks.length;
}

void SeamWriter::copy(const Partial& from, Partial& into) {
  steps_.copy(from.low, into.low);
  if (wraps(from.ranks)) steps_.copy(from.high, into.high);
  into.ranks = from.ranks;
}

Partial SeamWriter::begin_result(Rank last, Register beside) const {
  return {.ranks = {last, 0},
          .low = result_wraps(last) ? beside : target_register,
          .high = target_register};
}

Partial SeamWriter::begin_result(const Partial& from, Register beside) {
  Partial result = begin_result(from.ranks.last, beside);
  if (!result_wraps(from.ranks.last) || !(begins_at_seam(from.ranks) || wraps(from.ranks))) {
    copy(from, result);
    return result;
  }
  result.low = from.low;  // complete already: only read from here on
  if (wraps(from.ranks)) steps_.copy(from.high, result.high);
  result.ranks = from.ranks;
  return result;
}

void SeamWriter::finish_result(const Partial& result) {
  assert(result.ranks.length == plan_.rank_count);
  if (result_wraps(result.ranks.last)) steps_.combine(result.low, target_register);
}

}  // namespace tutti::plan
