#include "persistent_operations.hpp"

#include <algorithm>

#include "handles.hpp"
#include "loaded_mpi.hpp"

namespace tutti::interposer {
namespace {

constexpr std::size_t refused_max = 64;
static_assert(persistent_max < 64);  // a bit of a word that MPI combines for each

bool has(std::uint64_t set, std::size_t index) {
  return (set >> index & 1) != 0;
}

}  // namespace

PersistentOperations::Claimed PersistentOperations::claim(MPI_Comm communicator,
                                                          const ShapeKey& key,
                                                          const Allowed& allowed,
                                                          const std::function<void(Shape&)>& make) {
  if (std::find(refused_.begin(), refused_.end(), key) != refused_.end())
    return {nullptr, Refusal::refused};
  slots_.resize(persistent_max);
  std::uint64_t mine = 0, unused = 0;
  for (std::size_t i = 0; i < persistent_max && allowed.has_room; ++i)
    if (!slots_[i].is_used) mine |= std::uint64_t{1} << i;
  own_mpi().Allreduce(&mine, &unused, 1, handles().int64, handles().bit_and, communicator);
  if (unused == 0) return {nullptr, Refusal::requests};

  // One that has had the same kind of request, or one without an operation, or the oldest.
  const auto rank_of = [&](const Slot& slot) {
    const bool is_same = slot.instance && slot.instance->key == key;
    return is_same ? 2 : slot.instance ? 0 : 1;
  };
  Slot* best = nullptr;
  for (std::size_t i = 0; i < persistent_max; ++i) {
    Slot& slot = slots_[i];
    if (!has(unused, i)) continue;
    if (best == nullptr || rank_of(slot) > rank_of(*best) ||
        (rank_of(slot) == rank_of(*best) && slot.last_claim < best->last_claim))
      best = &slot;
  }
  if (rank_of(*best) != 2) {
    if (!allowed.may_make) return {nullptr, Refusal::later};
    best->instance = std::make_unique<Shape>(key, uncounted_);
    make(*best->instance);
    if (!best->instance->operation) {
      best->instance.reset();
      if (refused_.size() < refused_max) refused_.push_back(key);
      return {nullptr, Refusal::refused};
    }
  }
  best->is_used = true;
  best->last_claim = ++claims_;
  drop_spare(unused & ~(std::uint64_t{1} << (best - slots_.data())));
  return {best};
}

void PersistentOperations::free_for_verify() noexcept {
  for (Slot& slot : slots_)
    if (!slot.is_used && slot.for_verify != handles().no_comm)
      own_mpi().Comm_free(&slot.for_verify);
}

// All ranks are here, and none of them has a call of these operations in flight.
void PersistentOperations::drop_spare(std::uint64_t unused) {
  std::vector<Slot*> spare;
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (has(unused, i) && slots_[i].instance) spare.push_back(&slots_[i]);
  std::sort(spare.begin(), spare.end(),
            [](const Slot* one, const Slot* other) { return one->last_claim > other->last_claim; });
  for (std::size_t i = persistent_spare_max; i < spare.size(); ++i) spare[i]->instance.reset();
}

}  // namespace tutti::interposer
