#include "program_communicator.hpp"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <vector>

#include "communicator_exchange.hpp"
#include "handles.hpp"
#include "loaded_mpi.hpp"
#include "tutti/collectives.hpp"
#include "tutti/status.hpp"

namespace tutti::interposer {
namespace {

Operation make(Communicator& communicator, Shape& shape, const void* source, void* target) {
  const ShapeKey& key = shape.key;
  switch (key.collective) {
    case Collective::barrier:
      return barrier(communicator);
    case Collective::allreduce:
      return allreduce(communicator, {.source = source,
                                      .target = target,
                                      .element_count = key.element_count,
                                      .reduction = shape.reduction()});
    case Collective::broadcast:
      return broadcast(communicator, {.buffer = target,
                                      .bytes = key.bytes(),
                                      .root = Rank{static_cast<std::uint32_t>(key.root)}});
    case Collective::reduce:
      return reduce(communicator, {.source = source,
                                   .target = target,
                                   .element_count = key.element_count,
                                   .reduction = shape.reduction(),
                                   .root = Rank{static_cast<std::uint32_t>(key.root)}});
  }
  throw Error(ErrorCode::unsupported, "no such collective");
}

/// Whether all of its ranks are of this rank's MPI_COMM_WORLD: only these have compared settings.
bool is_within_world(MPI_Comm handle, int rank_count) {
  const MpiFunctions& mpi = own_mpi();
  MPI_Group group{}, world{};
  mpi.Comm_group(handle, &group);
  mpi.Comm_group(handles().world, &world);
  std::vector<int> ranks(static_cast<std::size_t>(rank_count));
  std::vector<int> in_world(ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  mpi.Group_translate_ranks(group, rank_count, ranks.data(), world, in_world.data());
  mpi.Group_free(&group);
  mpi.Group_free(&world);
  return std::find(in_world.begin(), in_world.end(), MPI_UNDEFINED) == in_world.end();
}

}  // namespace

ProgramCommunicator::ProgramCommunicator(MPI_Comm handle) : handle_(handle) {
  const MpiFunctions& mpi = own_mpi();
  int is_inter = 0;
  int rank_count = 0;
  mpi.Comm_test_inter(handle, &is_inter);
  mpi.Comm_rank(handle, &rank_);
  mpi.Comm_size(handle, &rank_count);
  rank_count_ = static_cast<std::uint32_t>(rank_count);
  if (is_inter != 0)
    passing_ = Passing::intercommunicator;
  else if (rank_count == 1)
    passing_ = Passing::alone;
  else if (!is_within_world(handle, rank_count))
    passing_ = Passing::other_worlds;
}

Shape& ProgramCommunicator::count_call(const ShapeKey& key) {
  auto found = shapes_.find(key);
  if (found == shapes_.end()) {
    if (shapes_.size() >= shapes_max)
      std::erase_if(shapes_, [](const auto& entry) { return !entry.second->operation; });
    found = shapes_.emplace(key, std::make_unique<Shape>(key, calls_)).first;
  }
  Shape& shape = *found->second;
  shape.count_call();
  return shape;
}

bool ProgramCommunicator::is_due(const Shape& shape, std::uint32_t after) const noexcept {
  if (shape.calls <= after) return false;
  if (!communicator_) return !was_put_off_ || calls_ > calls_before_adoption;
  const bool is_early = operations_made_ < early_operations_max && !shape.was_dropped;
  return is_early || shape.calls > calls_before_operation;
}

void ProgramCommunicator::make_operation(Shape& shape, Context* context, Vote vote,
                                         const void* source, void* target) {
  if (!communicator_) adopt(context, vote);
  if (!communicator_) return;
  if (operations_ == operations_max) drop_the_oldest(shape);
  try {
    // Ranks may come late by any time.
    own_mpi().Barrier(handle_);
    shape.operation.emplace(make(*communicator_, shape, source, target));
    shape.last_source = shape.last_target = nullptr;
    ++operations_;
    ++operations_made_;
  } catch (const Error& error) {  // on all ranks
    shape.is_refused = true;
    if (communicator_->failure().status != Status::ok) passing_ = Passing::failed;
    if (rank_ == 0)
      std::fprintf(stderr, "tutti: %s of %llu bytes is left to MPI: %s\n",
                   name_of(shape.key.collective),
                   static_cast<unsigned long long>(shape.key.bytes()), error.what());
  }
}

void ProgramCommunicator::adopt(Context* context, Vote vote) {
  Vote outcome = Vote::never;
  own_mpi().Allreduce(&vote, &outcome, 1, handles().int32, handles().min, handle_);
  if (outcome == Vote::never) passing_ = Passing::too_many;
  if (outcome == Vote::later) was_put_off_ = true;
  if (outcome != Vote::now) return;
  try {
    exchange_ = communicator_exchange(handle_);
    communicator_.emplace(*context, *exchange_);
  } catch (const Error& error) {  // on all ranks
    passing_ = Passing::failed;
    if (rank_ == 0)
      std::fprintf(stderr, "tutti: collectives of %u ranks are left to MPI: %s\n", rank_count_,
                   error.what());
  }
}

void ProgramCommunicator::drop_the_oldest(const Shape& but) {
  Shape* oldest = nullptr;
  for (auto& [key, shape] : shapes_)
    if (shape->operation && shape.get() != &but &&
        (oldest == nullptr || shape->last_used < oldest->last_used))
      oldest = shape.get();
  if (oldest == nullptr) return;
  oldest->operation.reset();
  oldest->calls = 0;
  oldest->was_dropped = true;
  --operations_;
}

}  // namespace tutti::interposer
