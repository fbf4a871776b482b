#include "verification.hpp"

#include <algorithm>
#include <memory>
#include <numeric>

#include "after_call.hpp"
#include "calls.hpp"
#include "elements.hpp"
#include "framed_blocks.hpp"
#include "handles.hpp"
#include "interposer.hpp"
#include "loaded_mpi.hpp"
#include "running.hpp"

namespace tutti::interposer {
namespace {

/// What memory holds that nobody has written: hardly any result.
constexpr std::byte unwritten{0xa5};

std::string name_of_communicator(MPI_Comm communicator) {
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  own_mpi().Comm_get_name(communicator, name, &length);
  return length == 0 ? "a communicator without a name" : name;
}

/// The blocking call that is being made; there is one at a time.
std::unique_ptr<Verification>& current() {
  static auto* const one = new std::unique_ptr<Verification>;  // as interposer()
  return *one;
}

void after(int result) noexcept {
  if (result == MPI_SUCCESS) current()->compare();
  current().reset();
}

template <class SomeCall, class... More>
SomeCall begin(const SomeCall& call, const More&... more) {
  current() = std::make_unique<Verification>();
  const SomeCall own = current()->begin(call, more...);
  current()->add_magnitudes(call.communicator);
  after_call = after;
  return own;
}

/// Where the block of a rank begins in the target.
const void* block_in_target(const BlockCall& call, std::size_t rank) {
  if (call.collective == Collective::scatter || call.collective == Collective::scatterv)
    return call.target.address;
  return moved(call.target.address,
               call.displacements.is_given() ? call.displacements[rank]
                                             : static_cast<std::int64_t>(rank) * call.target.count,
               call.target.type);
}

}  // namespace

void Verification::describe(Collective collective, MPI_Op op, MPI_Comm handle,
                            const ProgramCommunicator& communicator) {
  const CallCounts& counts = interposer().counts(collective);
  call_.collective = collective;
  call_.number = std::accumulate(counts.passed.begin(), counts.passed.end(), counts.taken) + 1;
  call_.rank = communicator.rank();
  call_.rank_count = communicator.rank_count();
  call_.communicator = name_of_communicator(handle);
  call_.is_moved = !combines(collective);
  call_.tolerance = tolerance_of(collective, op, call_.rank_count);
}

Call Verification::begin(const Call& call, const ProgramCommunicator& communicator) {
  describe(call.collective, call.op, call.communicator, communicator);
  const Collective collective = blocking(call.collective);
  Call own = call;
  if (collective == Collective::barrier) return own;
  call_.type = call.type;
  const Buffers buffers =
      buffers_of(collective, communicator.rank() == call.root, call.source, call.target);
  if (combines(collective)) {
    own.source = buffers.source;
    look_at_operands(own.source, call.count);
    if (collective != call.collective && own.source == call.target) {
      // MPI may write its result there before tutti has read.
      std::byte* const kept = lay_out(operands_, call.count);
      copy_elements(own.source, kept, call, true, false);
      own.source = kept;
    }
  }
  if (buffers.target == no_buffer) return own;
  if (combines(collective)) {
    own.target = lay_out(own_, call.count);
  } else {
    // Elements of a broadcast may lie anywhere in memory.
    int bytes = 0;
    own_mpi().Type_size(call.type, &bytes);
    own.count = bytes * call.count;
    own.type = handles().byte;
    own_.assign(static_cast<std::size_t>(own.count), unwritten);
    own.target = own_.data();
  }
  call_.results = {{.by_mpi = call.target, .by_tutti = own.target, .count = call.count}};
  return own;
}

BlockCall Verification::begin(const BlockCall& call, const BlockSignature& signature,
                              const ProgramCommunicator& communicator) {
  describe(call.collective, call.op, call.communicator, communicator);
  call_.type = call.target.type;
  const auto rank = static_cast<std::size_t>(call_.rank);
  const std::size_t rank_count = call_.rank_count;
  const bool is_root = call_.rank == call.root;
  const bool is_in_place = call.source.address == MPI_IN_PLACE;
  const auto count_of = [&](std::size_t of_rank) {
    return call.counts.is_given() ? call.counts[of_rank] : call.target.count;
  };
  BlockCall own = call;
  if (is_reduction(call.collective)) {
    std::int64_t all = 0, before = 0;
    for (std::size_t i = 0; i < rank_count; ++i) {
      if (i == rank) before = all;
      all += count_of(i);
    }
    if (is_in_place) own.source.address = call.target.address;
    look_at_operands(own.source.address, all);
    own.target.address = lay_out(own_, count_of(rank));
    call_.results = {{.by_mpi = call.target.address,
                      .by_tutti = own.target.address,
                      .count = count_of(rank),
                      .block = call_.rank,
                      .first_of_operands = static_cast<std::size_t>(before)}};
    return own;
  }
  if (is_in_place)
    own.source = {
        call.collective == Collective::alltoall ? call.target.address : block_in_target(call, rank),
        count_of(rank), call.target.type};
  const bool gets_one = call.collective == Collective::scatter;
  const bool gets_none = gets_one ? call.target.address == MPI_IN_PLACE
                                  : call.collective == Collective::gather && !is_root;
  if (gets_none) return own;
  // tutti's blocks follow each other without gaps.
  const std::size_t bytes = signature.key.element_count;  // of a block, or of all of them
  own_.assign(call.counts.is_given() || gets_one ? bytes : bytes * rank_count, unwritten);
  own.target = {own_.data(), static_cast<std::int64_t>(bytes), handles().byte};
  std::size_t next = 0;
  for (std::size_t i = gets_one ? rank : 0; i < (gets_one ? rank + 1 : rank_count); ++i) {
    call_.results.push_back({.by_mpi = block_in_target(call, i),
                             .by_tutti = own_.data() + next,
                             .count = count_of(i),
                             .block = static_cast<int>(i)});
    counts_.push_back(
        static_cast<std::int64_t>(call.counts.is_given() ? signature.blocks[i] : bytes));
    displacements_.push_back(static_cast<std::int64_t>(next));
    next += static_cast<std::size_t>(counts_.back());
  }
  if (call.counts.is_given()) {
    own.counts = Numbers::of_64_bits(counts_.data());
    own.displacements = Numbers::of_64_bits(displacements_.data());
  }
  return own;
}

BlockCall Verification::begin(const BlockCall& call, const ProgramCommunicator& communicator) {
  describe(call.collective, call.op, call.communicator, communicator);
  call_.type = call.target.type;
  const auto rank = static_cast<std::size_t>(call_.rank);
  const bool is_root = call_.rank == call.root;
  const bool is_all_to_all = call.collective == Collective::alltoallv;
  const bool gets_one = call.collective == Collective::scatterv;
  BlockCall own = call;
  if (is_all_to_all && call.source.address == MPI_IN_PLACE) {
    own.source = call.target;
    own.source_counts = call.counts;
    own.source_displacements = call.displacements;
  } else if (call.source.address == MPI_IN_PLACE && is_root) {
    own.source = {block_in_target(call, rank), call.counts[rank], call.target.type};
  }
  if (gets_one ? call.target.address == MPI_IN_PLACE : !is_all_to_all && !is_root) return own;
  // tutti's blocks follow each other without gaps.
  const std::size_t first = gets_one ? rank : 0, end = gets_one ? rank + 1 : call_.rank_count;
  std::size_t next = 0;
  for (std::size_t i = first; i < end; ++i) {
    const std::int64_t count = gets_one ? call.target.count : call.counts[i];
    const bool is_own = gets_one ? is_root : i == rank;
    const std::size_t bytes = framed_bytes(count, call.target.type, is_own).value_or(0);
    counts_.push_back(static_cast<std::int64_t>(bytes));
    displacements_.push_back(static_cast<std::int64_t>(next));
    next += bytes;
  }
  own_.assign(next + 1, unwritten);  // so that there is an address
  for (std::size_t i = first; i < end; ++i)
    if (counts_[i - first] > 0)
      call_.results.push_back({.by_mpi = block_in_target(call, i),
                               .by_tutti = own_.data() + displacements_[i - first],
                               .count = gets_one ? call.target.count : call.counts[i],
                               .block = static_cast<int>(i)});
  own.target = {own_.data(), gets_one ? counts_[0] : 0, handles().byte};
  own.counts = Numbers::of(counts_.data());
  own.displacements = Numbers::of(displacements_.data());
  return own;
}

std::byte* Verification::lay_out(std::vector<std::byte>& room, std::int64_t count) const {
  MPI_Aint lower = 0, extent = 0, true_lower = 0, true_extent = 0;
  own_mpi().Type_get_extent(call_.type, &lower, &extent);
  own_mpi().Type_get_true_extent(call_.type, &true_lower, &true_extent);
  const MPI_Aint last = extent * static_cast<MPI_Aint>(std::max<std::int64_t>(count, 1) - 1);
  const MPI_Aint begin = std::min<MPI_Aint>(last, 0) + true_lower;
  const MPI_Aint end = std::max<MPI_Aint>(last, 0) + true_lower + true_extent;
  room.assign(static_cast<std::size_t>(end - begin), unwritten);
  return room.data() - begin;
}

/// Ranks that do not know their type's numbers have zeros, so that all take part in the sum.
void Verification::look_at_operands(const void* source, std::int64_t count) {
  if (call_.tolerance.of_operands == 0) return;
  magnitudes_.assign(static_cast<std::size_t>(count), 0);
  const std::vector<Leaf> leaves = leaves_of(call_.type);
  if (leaves.empty()) return;
  const std::vector<std::byte> elements = packed(source, count, call_.type);
  const std::size_t bytes = elements.size() / magnitudes_.size();
  for (std::size_t i = 0; i < magnitudes_.size(); ++i)
    magnitudes_[i] = sum_of_magnitudes(leaves, &elements[i * bytes]);
}

void Verification::add_magnitudes(MPI_Comm communicator) {
  if (magnitudes_.empty()) return;
  call_.magnitudes.resize(magnitudes_.size());
  own_mpi().Allreduce(magnitudes_.data(), call_.magnitudes.data(),
                      static_cast<int>(magnitudes_.size()), handles().float64, handles().sum,
                      communicator);
}

int Verification::start_mpi(const Call& call) {
  const MpiFunctions& mpi = own_mpi();
  const Collective collective = blocking(call.collective);
  const int count = static_cast<int>(call.count);
  MPI_Request request{};
  int result = MPI_SUCCESS;
  if (collective == Collective::barrier)
    result = mpi.Ibarrier(call.communicator, &request);
  else if (collective == Collective::allreduce)
    result = mpi.Iallreduce(call.source, call.target, count, call.type, call.op, call.communicator,
                            &request);
  else if (collective == Collective::broadcast)
    result = mpi.Ibcast(call.target, count, call.type, call.root, call.communicator, &request);
  else
    result = mpi.Ireduce(call.source, call.target, count, call.type, call.op, call.root,
                         call.communicator, &request);
  if (result != MPI_SUCCESS) return result;
  of_mpi_.push_back(request);
  if (magnitudes_.empty()) return MPI_SUCCESS;
  call_.magnitudes.resize(magnitudes_.size());
  result = mpi.Iallreduce(magnitudes_.data(), call_.magnitudes.data(),
                          static_cast<int>(magnitudes_.size()), handles().float64, handles().sum,
                          call.communicator, &request);
  if (result == MPI_SUCCESS)
    of_mpi_.push_back(request);
  else
    has_failed_ = true;
  return MPI_SUCCESS;
}

bool Verification::is_mpi_done() noexcept {
  while (!of_mpi_.empty()) {
    int is_done = 0;
    if (own_mpi().Test(&of_mpi_.back(), &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
      has_failed_ = true;
    else if (is_done == 0)
      return false;
    of_mpi_.pop_back();
  }
  return true;
}

void Verification::compare() const {
  if (!has_failed_) interposer::compare(call_);
}

Call verified(const Call& call, const ProgramCommunicator& communicator) {
  return begin(call, communicator);
}

BlockCall verified(const BlockCall& call, const BlockSignature& signature,
                   const ProgramCommunicator& communicator) {
  return begin(call, signature, communicator);
}

BlockCall verified(const BlockCall& call, const ProgramCommunicator& communicator) {
  return begin(call, communicator);
}

void forget_verified() noexcept {
  after_call = nullptr;
  current().reset();
}

}  // namespace tutti::interposer
