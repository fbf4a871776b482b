// The state of a Segment: a block of the arena that belongs to the user, or such a block of a
// neighbour's arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <tutti/communicator.hpp>
#include <tutti/detail/descriptor.hpp>
#include <tutti/segment.hpp>
#include <tutti/status.hpp>

namespace tutti {

struct TUTTI_HIDDEN Segment::Implementation {
  /// Memory of this rank.  Throws Error{limit_exceeded}.
  Implementation(Context::Implementation& owner, std::size_t wanted);
  /// Memory of another rank of the node, which lies at `memory_there` in its process.
  Implementation(Context::Implementation& user, std::size_t wanted, std::byte* here,
                 std::uint64_t memory_there, std::shared_ptr<detail::Mapping> owner);
  ~Implementation();
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;

  Context::Implementation& context;
  std::size_t bytes;
  std::byte* memory = nullptr;
  Scope scope = Scope::rank;
  std::uint64_t at_owner = 0;                     // the address in its process
  std::uint64_t owning_process = 0;               // its key
  std::shared_ptr<detail::Mapping> mapping = {};  // of the owner, if that is another rank
  std::uint32_t users = 0;                        // operations, that is
  bool may_be_written = false;                    // by a peer, after a failure: stays out of use
};

namespace tune {
struct CollectiveRequest;
}

namespace runtime {

/// The segment in which all these bytes are; null: there is none.
Segment::Implementation* segment_with(const Context::Implementation& context, const void* buffer,
                                      std::size_t bytes) noexcept;

/// Finds the segment of this rank itself, which is registered.
Segment::Implementation* registered_segment_with(const Context::Implementation& context,
                                                 const void* buffer, std::size_t bytes) noexcept;

/// Whether all ranks may have registered buffers, and there is a plan that makes use of that.  All
/// ranks that ask for the same get the same result.
bool may_be_zero_copy(const Communicator::Implementation& ranks,
                      const tune::CollectiveRequest& asked);

/// What a rank says of a buffer that peers may read, and may write.
enum class Registration : std::uint8_t {
  none,
  when_made,   // with the operation: for the network
  in_segment,  // and mapped by the ranks of the node
};
std::uint64_t registration_of(const Context::Implementation& context, const void* buffer,
                              std::size_t bytes) noexcept;

/// Whether the buffers of all ranks are registered, and those of a node can be read by its ranks.
bool allow_zero_copy(const Communicator::Implementation& ranks,
                     std::span<const std::uint64_t> registrations);

/// Where the buffer lies in the memory of its node: a number that is the same for the same memory
/// only.  0: elsewhere.
std::uint64_t place_in_node(const Context::Implementation& context, const void* buffer,
                            std::size_t bytes) noexcept;

/// The words of errors about the ranks' buffers.
struct BuffersOfRanks {
  const char* collective;
  const char* name;       // "buffers", "targets"
  std::size_t bytes = 0;  // of each, if they are alike
};

/// Whether the ranks of each node have one buffer, by place_in_node() of all ranks.  Throws
/// Error{invalid_argument} if only some of them have, or if some overlap.
bool is_one_buffer_a_node(const BuffersOfRanks& what, std::span<const Node> node_of,
                          std::span<const std::uint64_t> place_of_rank);

/// Communicator::allocate(), on a rank that has found something wrong before: every rank throws.
Segment allocate(Communicator& communicator, std::size_t bytes, Scope scope,
                 std::optional<Error> error);

}  // namespace runtime
}  // namespace tutti
