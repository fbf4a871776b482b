#include "program_communicator.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "block_running.hpp"
#include "communicator_exchange.hpp"
#include "handles.hpp"
#include "loaded_mpi.hpp"
#include "requests.hpp"
#include "tutti/collectives.hpp"
#include "tutti/status.hpp"

namespace tutti::interposer {
namespace {

Operation make(Communicator& communicator, Shape& shape, bool is_in_place) {
  const ShapeKey& key = shape.key;
  // The program's buffers come with each call.  They may overlap where the operation has more
  // elements, and a null address is MPI_BOTTOM; here addresses are only compared.
  const void* const source = reinterpret_cast<const void*>(buffers_apart);
  void* const target = reinterpret_cast<void*>(is_in_place ? buffers_apart : 2 * buffers_apart);
  switch (key.collective) {
    case Collective::barrier:
    case Collective::ibarrier:
    case Collective::barrier_init:
      return barrier(communicator);
    case Collective::allreduce:
    case Collective::iallreduce:
    case Collective::allreduce_init:
      return allreduce(communicator, {.source = source,
                                      .target = target,
                                      .element_count = key.element_count,
                                      .reduction = shape.reduction()});
    case Collective::broadcast:
    case Collective::ibroadcast:
    case Collective::broadcast_init:
      return broadcast(communicator, {.buffer = target,
                                      .bytes = key.bytes(),
                                      .root = Rank{static_cast<std::uint32_t>(key.root)}});
    case Collective::reduce:
    case Collective::ireduce:
    case Collective::reduce_init:
      return reduce(communicator, {.source = source,
                                   .target = target,
                                   .element_count = key.element_count,
                                   .reduction = shape.reduction(),
                                   .root = Rank{static_cast<std::uint32_t>(key.root)}});
    case Collective::scan:
      return scan(communicator, {.source = source,
                                 .target = target,
                                 .element_count = key.element_count,
                                 .reduction = shape.reduction()});
    case Collective::exscan:
      return exscan(communicator, {.source = source,
                                   .target = target,
                                   .element_count = key.element_count,
                                   .reduction = shape.reduction()});
    case Collective::allgather:
    case Collective::allgatherv:
    case Collective::alltoall:
    case Collective::alltoallv:
    case Collective::gather:
    case Collective::gatherv:
    case Collective::scatter:
    case Collective::scatterv:
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_block:
      return make_block_operation(communicator, shape);
    case Collective::allgather_init:
    case Collective::allgatherv_init:
    case Collective::alltoall_init:
    case Collective::alltoallv_init:
    case Collective::alltoallw_init:
    case Collective::gather_init:
    case Collective::gatherv_init:
    case Collective::scatter_init:
    case Collective::scatterv_init:
    case Collective::reduce_scatter_init:
    case Collective::reduce_scatter_block_init:
    case Collective::scan_init:
    case Collective::exscan_init:
      break;
  }
  throw Error(ErrorCode::unsupported, "no such collective");
}

/// Whether all ranks are of this MPI_COMM_WORLD, in which MPI_Init has seen that all have this
/// library.  All ranks come to the same answer.
bool is_of_this_job(MPI_Comm handle, std::uint32_t rank_count) {
  const MpiFunctions& mpi = own_mpi();
  MPI_Group ranks{}, world{};
  mpi.Comm_group(handle, &ranks);
  mpi.Comm_group(handles().world, &world);
  std::vector<int> own(rank_count), in_world(rank_count);
  std::iota(own.begin(), own.end(), 0);
  mpi.Group_translate_ranks(ranks, static_cast<int>(rank_count), own.data(), world,
                            in_world.data());
  mpi.Group_free(&ranks);
  mpi.Group_free(&world);
  return std::find(in_world.begin(), in_world.end(), MPI_UNDEFINED) == in_world.end();
}

[[noreturn]] void throw_no_way_for_long_blocks() {
  throw Error(ErrorCode::limit_exceeded, "MPI makes no further communicator, for long blocks");
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
  else if (!is_of_this_job(handle, rank_count_))
    passing_ = Passing::other_job;
}

Shape& ProgramCommunicator::count_call(const ShapeKey& key) {
  auto found = shapes_.find(key);
  if (found == shapes_.end()) {
    if (shapes_.size() >= shapes_max)
      std::erase_if(shapes_, [](const auto& entry) {
        return !entry.second->has_operation() && !entry.second->is_wanted;
      });
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
                                         bool is_in_place) {
  if (!communicator_) adopt(context, vote);
  if (!communicator_) return;
  drop_the_oldest(1, shape);
  try_to_make(shape, [&] {
    if (shape.key.collective == Collective::gatherv && for_long_blocks_ == handles().no_comm) {
      for_long_blocks_ = make_way();
      if (for_long_blocks_ == handles().no_comm) throw_no_way_for_long_blocks();
    }
    shape.operation.emplace(make(*communicator_, shape, is_in_place));
    shape.last_source = shape.last_target = nullptr;
    ++operations_;
    ++operations_made_;
  });
}

PersistentOperations::Claimed ProgramCommunicator::claim_persistent(const ShapeKey& key,
                                                                    bool has_room, Context* context,
                                                                    Vote vote) {
  if (!communicator_ && (!was_put_off_ || calls_ > calls_before_adoption)) adopt(context, vote);
  if (!communicator_) return {nullptr, PersistentOperations::Refusal::later};
  const bool is_early = operations_made_ < early_operations_max;
  return persistent_.claim(handle_, key, {.has_room = has_room, .may_make = is_early},
                           [&](Shape& shape) {
                             try_to_make(shape, [&] {
                               const bool is_in_place = key.combining == Combining::none;
                               shape.operation.emplace(make(*communicator_, shape, is_in_place));
                               ++operations_made_;
                             });
                           });
}

void ProgramCommunicator::want_operations(Shape& shape) {
  // All are made at once; what has no room is wanted again later.
  if (shape.is_wanted || wanted_.size() >= operations_max / instances_max) return;
  shape.is_wanted = true;
  wanted_.push_back(&shape);
}

void ProgramCommunicator::make_wanted_operations(Context* context, Vote vote) {
  if (!communicator_) adopt(context, vote);
  for (Shape* const shape : std::exchange(wanted_, {})) {
    shape->is_wanted = false;
    if (!communicator_ || passing_ != Passing::no) continue;
    drop_the_oldest(instances_max, *shape);
    try_to_make(*shape, [&] {
      std::vector<std::unique_ptr<Shape>> instances;
      for (std::size_t i = 0; i < instances_max; ++i) {
        Shape& instance =
            *instances.emplace_back(std::make_unique<Shape>(shape->key, shape->all_calls));
        const bool is_in_place = shape->key.combining == Combining::none;
        instance.operation.emplace(make(*communicator_, instance, is_in_place));
      }
      shape->instances = std::move(instances);
      operations_ += instances_max;
      operations_made_ += instances_max;
    });
  }
}

template <class Make>
void ProgramCommunicator::try_to_make(Shape& shape, Make&& make) {
  try {
    // Ranks may come late by any time.
    own_mpi().Barrier(handle_);
    const RequestsAtRest at_rest;
    make();
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
  // The least word counts, and says who is the first that cannot.
  constexpr int now = std::numeric_limits<int>::max(), later = now - 1;
  const int word = vote == Vote::now ? now : vote == Vote::later ? later : rank_;
  int least = now;
  own_mpi().Allreduce(&word, &least, 1, handles().int32, handles().min, handle_);
  if (least == later) was_put_off_ = true;
  if (least < later) {
    passing_ = Passing::too_many;
    is_first_unable_ = least == rank_;
  }
  if (least != now) return;
  try {
    const RequestsAtRest at_rest;
    exchange_ = communicator_exchange(handle_);
    communicator_.emplace(*context, *exchange_);
  } catch (const Error& error) {  // on all ranks
    passing_ = Passing::failed;
    if (rank_ == 0)
      std::fprintf(stderr, "tutti: collectives of %u ranks are left to MPI: %s\n", rank_count_,
                   error.what());
  }
}

MPI_Comm ProgramCommunicator::make_way() {
  const MpiFunctions& mpi = own_mpi();
  if (has_no_way_) return handles().no_comm;
  // A program that has used up what MPI has of communicators hears nothing of it.
  MPI_Errhandler of_program{};
  mpi.Comm_get_errhandler(handle_, &of_program);
  mpi.Comm_set_errhandler(handle_, handles().errors_return);
  MPI_Comm way = handles().no_comm;
  const int is_made = mpi.Comm_split(handle_, 0, rank_, &way) == MPI_SUCCESS;
  mpi.Comm_set_errhandler(handle_, of_program);
  mpi.Errhandler_free(&of_program);
  int are_all_made = 0;
  mpi.Allreduce(&is_made, &are_all_made, 1, handles().int32, handles().min, handle_);
  if (are_all_made == 0) {
    // A rank that has it cannot free it, which is collective; MPI_Finalize does.
    has_no_way_ = true;
    return handles().no_comm;
  }
  mpi.Comm_set_errhandler(way, handles().errors_return);
  return way;
}

bool ProgramCommunicator::make_for_verify(PersistentOperations::Slot& slot) {
  if (slot.for_verify == handles().no_comm) slot.for_verify = make_way();
  if (slot.for_verify == handles().no_comm) {
    slot.is_used = false;
    return false;
  }
  // A difference is told with the program's name, also when its communicator is gone.
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  own_mpi().Comm_get_name(handle_, name, &length);
  own_mpi().Comm_set_name(slot.for_verify, name);
  return true;
}

void ProgramCommunicator::free_ways() noexcept {
  if (for_long_blocks_ != handles().no_comm) own_mpi().Comm_free(&for_long_blocks_);
  for_long_blocks_ = handles().no_comm;
  persistent_.free_for_verify();
}

void ProgramCommunicator::give_up(Shape& shape) noexcept {
  shape.is_refused = true;
  if (!shape.operation) return;
  shape.operation.reset();
  shape.source = std::vector<std::byte>();
  shape.target = std::vector<std::byte>();
  --operations_;
}

void ProgramCommunicator::drop_the_oldest(std::size_t count, const Shape& but) {
  const auto age = [](const Shape& shape) { return shape.is_refused ? 0 : shape.last_used; };
  while (operations_ + count > operations_max) {
    Shape* oldest = nullptr;
    for (auto& [key, shape] : shapes_)
      if (shape->has_operation() && shape.get() != &but &&
          (oldest == nullptr || age(*shape) < age(*oldest)))
        oldest = shape.get();
    if (oldest == nullptr) return;
    // All ranks have made the calls that are in flight, because they make this one.
    for (const std::unique_ptr<Shape>& instance : oldest->instances) complete_requests(*instance);
    operations_ -= oldest->operation ? 1 : oldest->instances.size();
    oldest->operation.reset();
    oldest->instances.clear();
    oldest->nonblocking = 0;
    oldest->calls = 0;
    oldest->was_dropped = true;
  }
}

}  // namespace tutti::interposer
