#include "framed_blocks.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "admission.hpp"
#include "elements.hpp"
#include "handles.hpp"
#include "interposer.hpp"
#include "loaded_mpi.hpp"
#include "predefined.hpp"
#include "running.hpp"
#include "verification.hpp"

namespace tutti::interposer {
namespace {

/// In a header, in place of a length: the block does not fit into a frame of any size, or only into
/// a large one.  In an alltoallv and a scatterv, all frames of a rank say so of its longest block.
constexpr std::uint64_t too_long = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t needs_large = too_long - 1;

std::uint64_t header_of(const std::byte* frame) noexcept {
  std::uint64_t header;
  std::memcpy(&header, frame, sizeof header);
  return header;
}
void set_header(std::byte* frame, std::uint64_t header) noexcept {
  std::memcpy(frame, &header, sizeof header);
}

/// How the elements of a type lie.
struct ElementKind {
  std::uint64_t bytes = 0;  // without gaps
  bool is_dense = false;
};
ElementKind kind_of(MPI_Datatype type) {
  if (is_dense(type)) return {find_type(type)->bytes, true};
  int bytes = 0;
  own_mpi().Type_size(type, &bytes);
  return {bytes < 0 ? too_long : static_cast<std::uint64_t>(bytes)};  // above what int can count
}

/// The blocks that this rank gives, or those that it gets: one, or one for each rank.
struct Side {
  const void* address = nullptr;
  MPI_Datatype type{};
  std::int64_t count = 0;  // of the only block
  Numbers counts = {};
  Numbers displacements = {};
  bool has_all = false;
  std::optional<ElementKind> kind = {};  // asked for when there are elements

  std::int64_t count_of(std::size_t rank) const noexcept { return has_all ? counts[rank] : count; }

  const ElementKind& elements() {
    if (!kind) kind = kind_of(type);
    return *kind;
  }

  const void* block_of(std::size_t rank) {
    if (!has_all) return address;
    if (elements().is_dense)
      return static_cast<const std::byte*>(address) +
             displacements[rank] * static_cast<std::int64_t>(elements().bytes);
    return moved(address, displacements[rank], type);
  }

  /// Bytes of a block without gaps, or too_long.  Its count is not negative.
  std::uint64_t bytes_of(std::size_t rank, std::uint64_t bytes_max = framed_bytes_max) {
    const auto number = static_cast<std::uint64_t>(count_of(rank));
    if (number == 0 || elements().bytes == 0) return 0;
    if (number > bytes_max || elements().bytes > bytes_max) return too_long;
    const std::uint64_t bytes = number * elements().bytes;
    return bytes > bytes_max ? too_long : bytes;
  }

  /// Where MPI_IN_PLACE is allowed, there is no side.
  bool is_misplaced() const noexcept { return address == MPI_IN_PLACE; }

  /// Whether MPI has to say what is wrong.
  bool is_wrong(std::size_t rank_count) const {
    if (is_misplaced()) return true;
    if (has_all && (!counts.is_given() || !displacements.is_given())) return true;
    for (std::size_t rank = 0; rank < (has_all ? rank_count : 1); ++rank)
      if (count_of(rank) < 0 || (count_of(rank) > 0 && type == handles().no_type)) return true;
    return false;
  }
};

/// What a call means on this rank.
struct Sides {
  std::optional<Side> gives, gets;
  bool keeps_own = false;  // its block for itself is in place
};

Sides sides_of(const BlockCall& call, bool is_root) {
  const auto side_of = [](const auto& blocks, const Numbers& counts, const Numbers& displacements,
                          bool has_all) {
    return Side{.address = blocks.address,
                .type = blocks.type,
                .count = blocks.count,
                .counts = counts,
                .displacements = displacements,
                .has_all = has_all};
  };
  const Side target = side_of(call.target, call.counts, call.displacements,
                              call.collective != Collective::scatterv);
  const Side source = side_of(call.source, call.source_counts, call.source_displacements,
                              call.collective != Collective::gatherv);
  const bool is_in_place = call.source.address == MPI_IN_PLACE;
  if (call.collective == Collective::alltoallv)
    return {is_in_place ? target : source, target, is_in_place};
  Sides sides;
  if (call.collective == Collective::gatherv) {
    sides.keeps_own = is_root && is_in_place;
    if (!sides.keeps_own) sides.gives = source;
    if (is_root) sides.gets = target;
    return sides;
  }
  sides.keeps_own = is_root && call.target.address == MPI_IN_PLACE;
  if (is_root) sides.gives = source;
  if (!sides.keeps_own) sides.gets = target;
  return sides;
}

bool is_wrong(const std::optional<Side>& side, std::size_t rank_count) {
  return side && side->is_wrong(rank_count);
}

/// This holds all that is known of a call but its buffers and counts.
struct FramedWay {
  Shape* shape = nullptr;
  MPI_Comm communicator{};
  MPI_Comm for_long_blocks{};  // of a gatherv
  Place place = {};
  int root = 0;
  bool is_root = false;
  std::size_t frame_bytes = 0;

  std::byte* frame(std::byte* frames, std::size_t rank) const noexcept {
    return frames + rank * frame_bytes;
  }
};

/// What became of a call.
struct Run {
  std::uint64_t bytes = 0;  // that this rank gave
  int result = MPI_SUCCESS;
  bool is_left = false;
  Reason reason = Reason::undefined;
};

/// Fills a frame, and returns its header.  Where the block does not fit, that is all.
std::uint64_t put_into(std::byte* frame, Side& side, std::size_t rank, const FramedWay& way,
                       Run& run) {
  std::uint64_t bytes = side.bytes_of(rank);
  if (bytes != too_long && bytes > way.frame_bytes - frame_header_bytes) bytes = needs_large;
  set_header(frame, bytes);
  if (bytes == 0 || bytes >= needs_large) return bytes;
  run.bytes += bytes;
  std::byte* const into = frame + frame_header_bytes;
  if (side.elements().is_dense)
    std::memcpy(into, side.block_of(rank), bytes);
  else
    Elements(side.block_of(rank), static_cast<std::size_t>(side.count_of(rank)), side.type)
        .pack(into, bytes, way.communicator);
  return bytes;
}

/// Empties a frame, as far as the block has room.
void take_from(const std::byte* frame, Side& side, std::size_t rank, const FramedWay& way,
               Run& run) {
  const std::uint64_t sent = header_of(frame);
  if (sent == 0) return;
  const std::uint64_t room_there = side.bytes_of(rank);
  if (sent > room_there) run.result = MPI_ERR_TRUNCATE;
  const std::uint64_t bytes = std::min(sent, room_there);
  if (bytes == 0) return;
  const std::byte* const from = frame + frame_header_bytes;
  if (side.elements().is_dense) {
    std::memcpy(const_cast<void*>(side.block_of(rank)), from, bytes);
    return;
  }
  const std::uint64_t number = bytes / side.elements().bytes;
  Elements(side.block_of(rank), number, side.type)
      .unpack(from, number * side.elements().bytes, way.communicator);
}

/// The block of a rank for itself is only copied, up to so many bytes.
std::uint64_t copied_bytes_max() {
  return interposer().settings().bytes_max;
}

/// The frame of a rank for itself holds nothing, but says if its block cannot be copied.
std::uint64_t put_own(std::byte* frame, Side& side, std::size_t rank, Run& run) {
  const std::uint64_t bytes = side.bytes_of(rank, copied_bytes_max());
  const std::uint64_t header = bytes == too_long ? too_long : 0;
  set_header(frame, header);
  if (header == 0) run.bytes += bytes;
  return header;
}

void copy_own(Side& from, Side& to, const FramedWay& way, Run& run) {
  const std::size_t rank = way.place.rank;
  const std::uint64_t sent = from.bytes_of(rank, copied_bytes_max());
  if (sent == 0) return;
  const std::uint64_t room_there = to.bytes_of(rank, copied_bytes_max());
  if (sent > room_there) run.result = MPI_ERR_TRUNCATE;
  const std::uint64_t bytes = std::min(sent, room_there);
  if (bytes == 0) return;
  void* const target = const_cast<void*>(to.block_of(rank));
  if (from.elements().is_dense && to.elements().is_dense) {
    std::memmove(target, from.block_of(rank), bytes);
    return;
  }
  std::vector<std::byte> between(sent);
  Elements(from.block_of(rank), static_cast<std::size_t>(from.count_of(rank)), from.type)
      .pack(between.data(), sent, way.communicator);
  const std::uint64_t number = bytes / to.elements().bytes;
  Elements(target, number, to.type)
      .unpack(between.data(), number * to.elements().bytes, way.communicator);
}

/// Frames for all ranks.
void put_all(std::byte* frames, Side& side, bool is_left, const FramedWay& way, Run& run) {
  std::uint64_t longest = is_left ? too_long : 0;
  for (std::size_t rank = 0; rank < way.place.rank_count && longest != too_long; ++rank) {
    std::byte* const frame = way.frame(frames, rank);
    longest = std::max(longest, rank == way.place.rank ? put_own(frame, side, rank, run)
                                                       : put_into(frame, side, rank, way, run));
  }
  if (longest < needs_large) return;
  for (std::size_t rank = 0; rank < way.place.rank_count; ++rank)
    set_header(way.frame(frames, rank), longest);
}

/// Ends the operation of these frames, with its buffers.  All ranks decide so in the same call.
void end_operation(const FramedWay& way) {
  interposer().communicator(way.communicator)->give_up(*way.shape);
  forget_fast_ways_of_frames();
}
void give_up(const FramedWay& way) {
  way.shape->long_score = long_score_max;  // nor are larger frames used
  end_operation(way);
}
void outgrow(const FramedWay& way) {
  way.shape->is_outgrown = true;
  end_operation(way);
}

/// The score of a gatherv goes on changing until its root tells the others.  It has an upper limit,
/// so that long calls of long ago are forgotten.
void add_to_score(Shape& shape, bool is_long) noexcept {
  if (is_long)
    shape.long_score = std::min(shape.long_score + 2, 2 * long_score_max);
  else if (shape.long_score > 0)
    --shape.long_score;
}

/// What all ranks have seen in the headers of a call.  Nothing, or why the call is left.
std::optional<Reason> learn(const FramedWay& way, std::uint64_t longest) {
  Shape& shape = *way.shape;
  add_to_score(shape, longest == too_long);
  if (shape.long_score >= long_score_max) give_up(way);
  if (longest == too_long) return Reason::long_block;
  if (longest != needs_large) return std::nullopt;
  outgrow(way);
  return Reason::first_calls;  // of a kind with large frames
}

Run left(Run run, Reason reason) {
  run.is_left = true;
  run.reason = reason;
  return run;
}

Run run_alltoallv(const FramedWay& way, Sides& sides, bool is_wrong_here) {
  Shape& shape = *way.shape;
  const std::size_t bytes = way.place.rank_count * way.frame_bytes;
  std::byte* const sent = room(shape.source, bytes);
  std::byte* const received = room(shape.target, bytes);
  Run result;
  put_all(sent, *sides.gives, is_wrong_here, way, result);
  run(shape, sent, received, way.communicator);
  std::uint64_t longest = 0;
  for (std::size_t rank = 0; rank < way.place.rank_count; ++rank)
    longest = std::max(longest, header_of(way.frame(received, rank)));
  const std::optional<Reason> why_left = learn(way, longest);
  if (why_left) return left(result, is_wrong_here ? Reason::undefined : *why_left);
  for (std::size_t rank = 0; rank < way.place.rank_count; ++rank)
    take_from(way.frame(received, rank), *sides.gets, rank, way, result);
  if (!sides.keeps_own) copy_own(*sides.gives, *sides.gets, way, result);
  return result;
}

Run run_scatterv(const FramedWay& way, Sides& sides, bool is_wrong_here) {
  Shape& shape = *way.shape;
  std::byte* sent = nullptr;
  std::byte* const received = room(shape.target, way.frame_bytes);
  Run result;
  if (way.is_root) {
    sent = room(shape.source, way.place.rank_count * way.frame_bytes);
    put_all(sent, *sides.gives, is_wrong_here, way, result);
  }
  run(shape, sent, received, way.communicator);
  const std::optional<Reason> why_left = learn(way, header_of(received));
  if (is_wrong_here) return left(result, Reason::undefined);
  if (why_left) return left(result, *why_left);
  if (!way.is_root)
    take_from(received, *sides.gets, way.place.rank, way, result);
  else if (!sides.keeps_own)
    copy_own(*sides.gives, *sides.gets, way, result);
  return result;
}

constexpr int long_block_tag = 0;

/// What MPI sends or receives of a long block.
struct LongBlock {
  void* address = nullptr;
  std::int64_t count = 0;
  MPI_Datatype type = handles().byte;

  /// Only a form with large counts brings more, which this MPI has then.
  bool is_of_int() const noexcept { return count <= std::numeric_limits<int>::max(); }
  int short_count() const noexcept { return static_cast<int>(count); }
};

/// A block of no elements has no type that matters.
LongBlock long_block_of(Side& side, std::size_t rank) {
  if (side.count_of(rank) == 0) return {};
  return {const_cast<void*>(side.block_of(rank)), side.count_of(rank), side.type};
}

int send_long(const LongBlock& block, const FramedWay& way) {
#if MPI_VERSION >= 4
  if (!block.is_of_int())
    return own_mpi().Send_c(block.address, block.count, block.type, way.root, long_block_tag,
                            way.for_long_blocks);
#endif
  return own_mpi().Send(block.address, block.short_count(), block.type, way.root, long_block_tag,
                        way.for_long_blocks);
}

int receive_long(const LongBlock& block, int from, const FramedWay& way) {
#if MPI_VERSION >= 4
  if (!block.is_of_int())
    return own_mpi().Recv_c(block.address, block.count, block.type, from, long_block_tag,
                            way.for_long_blocks, MPI_STATUS_IGNORE);
#endif
  return own_mpi().Recv(block.address, block.short_count(), block.type, from, long_block_tag,
                        way.for_long_blocks, MPI_STATUS_IGNORE);
}

/// The root's block for itself.
int move_long(const LongBlock& from, const LongBlock& to, const FramedWay& way) {
#if MPI_VERSION >= 4
  if (!from.is_of_int() || !to.is_of_int())
    return own_mpi().Sendrecv_c(from.address, from.count, from.type, way.root, long_block_tag,
                                to.address, to.count, to.type, way.root, long_block_tag,
                                way.for_long_blocks, MPI_STATUS_IGNORE);
#endif
  return own_mpi().Sendrecv(from.address, from.short_count(), from.type, way.root, long_block_tag,
                            to.address, to.short_count(), to.type, way.root, long_block_tag,
                            way.for_long_blocks, MPI_STATUS_IGNORE);
}

/// Takes the blocks of all ranks out of their frames, and receives the long ones by MPI.  If the
/// root's arguments are wrong, `side` is null: long blocks are received without room for them, so
/// that their senders do not wait.  They are received one after the other, because MPICH reports an
/// error of MPI_Wait to MPI_COMM_WORLD.
void take_gathered(std::byte* frames, Side* side, Side* own, const FramedWay& way, Run& run) {
  Shape& shape = *way.shape;
  bool has_long = false;
  for (std::size_t rank = 0; rank < way.place.rank_count; ++rank) {
    const std::byte* const frame = way.frame(frames, rank);
    const std::uint64_t header = header_of(frame);
    if (header < needs_large) {
      if (side != nullptr) take_from(frame, *side, rank, way, run);
      continue;
    }
    has_long = has_long || header == too_long;
    shape.is_outgrown = shape.is_outgrown || header == needs_large;
    const LongBlock block = side == nullptr ? LongBlock{} : long_block_of(*side, rank);
    const int result = rank == way.place.rank ? move_long(long_block_of(*own, rank), block, way)
                                              : receive_long(block, static_cast<int>(rank), way);
    if (run.result == MPI_SUCCESS) run.result = result;
  }
  add_to_score(shape, has_long);
}

/// The root alone has seen how long blocks are.  It tells the others in calls 1, 2, 4 and so on.
void learn_from_root(const FramedWay& way) {
  Shape& shape = *way.shape;
  if (!std::has_single_bit(++shape.framed_calls)) return;
  const bool is_enough = shape.long_score >= long_score_max;
  int seen[2] = {shape.is_outgrown ? 1 : 0, is_enough ? 1 : 0};
  own_mpi().Bcast(seen, 2, handles().int32, way.root, way.communicator);
  if (seen[0] != 0)
    outgrow(way);
  else if (seen[1] != 0)
    give_up(way);
}

Run run_gatherv(const FramedWay& way, Sides& sides, bool is_wrong_here) {
  Shape& shape = *way.shape;
  std::byte* const sent = room(shape.source, way.frame_bytes);
  std::byte* const received =
      way.is_root ? room(shape.target, way.place.rank_count * way.frame_bytes) : nullptr;
  Run result;
  std::uint64_t header = 0;
  if (sides.gives && !is_wrong_here)
    header = way.is_root ? put_own(sent, *sides.gives, way.place.rank, result)
                         : put_into(sent, *sides.gives, way.place.rank, way, result);
  else
    set_header(sent, header);
  const bool fits = header < needs_large;
  if (!fits)
    result.bytes = static_cast<std::uint64_t>(sides.gives->count) * sides.gives->elements().bytes;
  run(shape, sent, received, way.communicator);
  if (way.is_root) {
    take_gathered(received, is_wrong_here ? nullptr : &*sides.gets,
                  sides.gives ? &*sides.gives : nullptr, way, result);
    if (fits && sides.gives && !is_wrong_here) copy_own(*sides.gives, *sides.gets, way, result);
  } else if (!fits) {
    result.result = send_long(long_block_of(*sides.gives, way.place.rank), way);
  }
  learn_from_root(way);
  return is_wrong_here ? left(result, Reason::undefined) : result;
}

Run run_frames(const FramedWay& way, Sides& sides, bool is_wrong_here) {
  if (way.shape->key.collective == Collective::alltoallv)
    return run_alltoallv(way, sides, is_wrong_here);
  if (way.shape->key.collective == Collective::scatterv)
    return run_scatterv(way, sides, is_wrong_here);
  return run_gatherv(way, sides, is_wrong_here);
}

Run run_frames(const FramedWay& way, Sides& sides) {
  const std::size_t ranks = way.place.rank_count;
  const bool is_wrong_here = is_wrong(sides.gives, ranks) || is_wrong(sides.gets, ranks);
  const Run done = run_frames(way, sides, is_wrong_here);
  // MPICH does not see this on a rank that is not the root, and crashes or waits for the root.
  if (is_wrong_here && has_root(way.shape->key.collective) && !way.is_root &&
      ((sides.gives && sides.gives->is_misplaced()) || (sides.gets && sides.gets->is_misplaced())))
    return {.result = MPI_ERR_ARG};
  return done;
}

/// Counts a call that is done, and has MPI's error handler called as MPI would.
int finish(const BlockCall& call, const Run& run) {
  CallCounts& counts = interposer().counts(call.collective);
  ++counts.taken;
  counts.bytes_taken += run.bytes;
  if (run.result != MPI_SUCCESS) own_mpi().Comm_call_errhandler(call.communicator, run.result);
  return run.result;
}

/// The last call of its kind that was taken: one on the same communicator, with the same root, of
/// the same predefined types, needs no looking up, whatever its counts.
struct FastFrames {
  FramedWay way = {};
  MPI_Datatype source_type{}, target_type{};
  bool is_source_in_place = false, is_target_in_place = false;
  std::optional<ElementKind> given = {}, got = {};
};
std::array<FastFrames, 3> last_ways;

FastFrames& last_way(Collective collective) noexcept {
  return last_ways[collective == Collective::alltoallv ? 0
                   : collective == Collective::gatherv ? 1
                                                       : 2];
}

bool matches(const FastFrames& last, const BlockCall& call) noexcept {
  return last.way.shape != nullptr && last.way.communicator == call.communicator &&
         last.way.root == call.root && last.source_type == call.source.type &&
         last.target_type == call.target.type &&
         last.is_source_in_place == (call.source.address == MPI_IN_PLACE) &&
         last.is_target_in_place == (call.target.address == MPI_IN_PLACE);
}

/// Handles of the program's own types may become others'.
bool can_be_remembered(const std::optional<Side>& side) {
  return !side || is_dense(side->type);
}

void remember(const BlockCall& call, const FramedWay& way) {
  const Sides sides = sides_of(call, way.is_root);
  if (way.shape->is_refused || !can_be_remembered(sides.gives) || !can_be_remembered(sides.gets))
    return;
  last_way(call.collective) = {
      .way = way,
      .source_type = call.source.type,
      .target_type = call.target.type,
      .is_source_in_place = call.source.address == MPI_IN_PLACE,
      .is_target_in_place = call.target.address == MPI_IN_PLACE,
      .given = sides.gives ? std::optional(kind_of(sides.gives->type)) : std::nullopt,
      .got = sides.gets ? std::optional(kind_of(sides.gets->type)) : std::nullopt};
}

std::optional<int> leave_framed(const BlockCall& call, Reason reason,
                                Report::Kind* reported_as = nullptr, std::uint64_t payload = 0) {
  leave(call, reason, reported_as, payload);
  return std::nullopt;
}

/// Every call passes, and is counted.
std::optional<int> report_framed(const BlockCall& call, Sides& sides, const Place& place,
                                 const Found& found) {
  if (is_wrong(sides.gives, place.rank_count) || is_wrong(sides.gets, place.rank_count))
    return leave_framed(call, Reason::undefined);
  std::uint64_t payload = 0;
  bool is_long = false;
  for (std::size_t rank = 0; rank < place.rank_count && sides.gives; ++rank) {
    Side& side = *sides.gives;
    const bool is_own = side.has_all ? rank == place.rank : sides.gets.has_value();
    const auto number = static_cast<std::uint64_t>(side.count_of(rank));
    if (number > 0) payload += number * side.elements().bytes;
    is_long =
        is_long || side.bytes_of(rank, is_own ? copied_bytes_max() : framed_bytes_max) == too_long;
    if (!side.has_all) break;
  }
  if (is_long && found.why_left == Reason::reported)
    return leave_framed(call, Reason::long_block, nullptr, payload);
  return leave_framed(call, found.why_left, found.reported_as, payload);
}

std::optional<int> take_slow(const BlockCall& call) {
  const Admission admission = admit(call.collective, call.communicator, call.root);
  if (admission.communicator == nullptr) return leave_framed(call, admission.why_left);
  ProgramCommunicator& communicator = *admission.communicator;
  const Place place{static_cast<std::size_t>(communicator.rank()), communicator.rank_count()};
  const bool is_large = large_frame_bytes > interposer().settings().bytes_max / place.rank_count;
  ShapeKey key{
      .collective = call.collective, .element_bytes = 1, .element_count = small_frame_bytes};
  if (has_root(call.collective)) key.root = call.root;
  const bool is_outgrown = communicator.has_outgrown(key);
  if (is_outgrown) key.element_count = large_frame_bytes;
  const bool is_root = has_root(call.collective) && communicator.rank() == call.root;
  Sides sides = sides_of(call, is_root);
  // Calls in small frames have been counted before.
  const std::uint32_t after = is_outgrown ? 0 : interposer().settings().after;
  const Found found = is_large ? Found{nullptr, Reason::large}
                               : find_operation(communicator, key, false, {}, after);
  if (interposer().reports()) return report_framed(call, sides, place, found);
  if (found.shape == nullptr) return leave_framed(call, found.why_left);
  const FramedWay way{.shape = found.shape,
                      .communicator = call.communicator,
                      .for_long_blocks = communicator.for_long_blocks(),
                      .place = place,
                      .root = call.root,
                      .is_root = is_root,
                      .frame_bytes = key.element_count};
  const bool verifies = interposer().settings().mode == Mode::verify &&
                        !is_wrong(sides.gives, place.rank_count) &&
                        !is_wrong(sides.gets, place.rank_count);
  if (verifies) sides = sides_of(verified(call, communicator), is_root);
  const Run run = run_frames(way, sides);
  if (run.is_left) {
    if (verifies) forget_verified();
    return leave_framed(call, run.reason);
  }
  if (!verifies) {
    remember(call, way);
    return finish(call, run);
  }
  finish(call, {.bytes = run.bytes});  // MPI reports errors itself
  return std::nullopt;
}

}  // namespace

std::optional<std::size_t> framed_bytes(std::int64_t count, MPI_Datatype type, bool is_own) {
  Side side{.type = type, .count = count};
  const std::uint64_t bytes = side.bytes_of(0, is_own ? copied_bytes_max() : framed_bytes_max);
  return bytes == too_long ? std::nullopt : std::optional<std::size_t>(bytes);
}

std::optional<int> take_framed(const BlockCall& call) noexcept {
  const FastFrames& last = last_way(call.collective);
  if (!matches(last, call)) return take_slow(call);
  const FramedWay way = last.way;  // which may be forgotten while MPI goes on
  Sides sides = sides_of(call, way.is_root);
  if (sides.gives) sides.gives->kind = last.given;
  if (sides.gets) sides.gets->kind = last.got;
  way.shape->count_call();
  const Run run = run_frames(way, sides);
  return run.is_left ? leave_framed(call, run.reason) : finish(call, run);
}

void forget_fast_ways_of_frames() noexcept {
  for (FastFrames& last : last_ways) last.way = {};
}

}  // namespace tutti::interposer
