// Alltoallv, gatherv and scatterv, where only some ranks know how long a block is.  Each block
// travels in a frame of one size, behind a header with its length, so that one operation does all
// calls of a communicator (and a root), and every call runs it.
//
// A long block fits into no frame.  In an alltoallv every rank says in its frames for all ranks
// that one of its blocks does not, and in a scatterv the root says so: all ranks then know it, and
// MPI does this call.  In the same way all learn that they need larger frames.  Of a gatherv the
// root alone knows: there MPI sends the long block to the root, over a communicator that the
// program does not know.  A rank's block for itself is copied.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "block_signature.hpp"
#include "shape.hpp"

namespace tutti::interposer {

/// Frames are small until a block does not fit, and large from then on.  A small one travels in the
/// cache line of the word that announces it: an alltoallv of two ranks whose CPUs share no cache
/// takes 0.35 us, and 0.42 in large frames.
inline constexpr std::size_t small_frame_bytes = 56;
inline constexpr std::size_t large_frame_bytes = 256;
inline constexpr std::size_t frame_header_bytes = sizeof(std::uint64_t);
inline constexpr std::size_t framed_bytes_max = large_frame_bytes - frame_header_bytes;

/// Each kind has a score: a call with long blocks adds 2, and any other call takes 1 away.  When it
/// reaches this number, all further calls of the kind are left to MPI.  That happens after eight
/// long calls in a row, or some time after more than a third of the calls are long.
inline constexpr std::uint32_t long_score_max = 16;

/// Bytes of a block without gaps, of a rank for itself or another one; nothing if it is too long.
/// The count is not negative.
std::optional<std::size_t> framed_bytes(std::int64_t count, MPI_Datatype type, bool is_own);

/// Returns what MPI would return if the call is done, and nothing if it is left to MPI.
std::optional<int> take_framed(const BlockCall& call) noexcept;

/// As forget_fast_ways(), which calls it.
void forget_fast_ways_of_frames() noexcept;

// Counts are int, or MPI_Count in the forms with large counts; displacements int or MPI_Aint.
inline constexpr auto take_alltoallv =
    [](const void* source, const auto* source_counts, const auto* source_displacements,
       MPI_Datatype source_type, void* target, const auto* counts, const auto* displacements,
       MPI_Datatype target_type, MPI_Comm communicator) noexcept {
      return take_framed({.collective = Collective::alltoallv,
                          .source = {source, 0, source_type},
                          .target = {target, 0, target_type},
                          .source_counts = Numbers::of(source_counts),
                          .source_displacements = Numbers::of(source_displacements),
                          .counts = Numbers::of(counts),
                          .displacements = Numbers::of(displacements),
                          .communicator = communicator});
    };
inline constexpr auto take_gatherv = [](const void* source, std::int64_t source_count,
                                        MPI_Datatype source_type, void* target, const auto* counts,
                                        const auto* displacements, MPI_Datatype target_type,
                                        int root, MPI_Comm communicator) noexcept {
  return take_framed({.collective = Collective::gatherv,
                      .source = {source, source_count, source_type},
                      .target = {target, 0, target_type},
                      .counts = Numbers::of(counts),
                      .displacements = Numbers::of(displacements),
                      .root = root,
                      .communicator = communicator});
};
inline constexpr auto take_scatterv =
    [](const void* source, const auto* source_counts, const auto* source_displacements,
       MPI_Datatype source_type, void* target, std::int64_t target_count, MPI_Datatype target_type,
       int root, MPI_Comm communicator) noexcept {
      return take_framed({.collective = Collective::scatterv,
                          .source = {source, 0, source_type},
                          .target = {target, target_count, target_type},
                          .source_counts = Numbers::of(source_counts),
                          .source_displacements = Numbers::of(source_displacements),
                          .root = root,
                          .communicator = communicator});
    };

}  // namespace tutti::interposer
