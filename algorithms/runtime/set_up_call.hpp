// What every exchange of a set-up begins with: which call it belongs to.  The block has one size
// for all calls, so that ranks that call different functions still complete the exchange together,
// see each other's calls, and throw the same error; nobody is left waiting, and the exchange stays
// in step.  What does not fit the block follows in an exchange of its own.
//
//   rank 0  [ allreduce, step 0 | card ]      every rank receives all three blocks, finds that rank
//   2 rank 1  [ allreduce, step 0 | card ]  ->  makes another call, and throws "ranks 0 and 1 call
//   rank 2  [ split, step 0 | choice   ]      allreduce, rank 2 calls split"
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace tutti::runtime {

enum class CallKind : std::uint32_t {
  communicator,
  synchronize,
  split,
  allocate,
  operation,
  cancel,
};

/// A call under way; `step` counts its exchanges.
struct SetUpCall {
  CallKind kind;
  const char* name;
  std::uint32_t step = 0;
};

struct SetUpBlock {
  static constexpr std::size_t payload_bytes_max = 448;

  std::uint64_t version = 0;  // first for good: another version may mean other things by the rest
  std::uint64_t communicator = 0;  // 0: it is being made
  std::uint64_t payload_bytes = 0;
  CallKind kind = CallKind::communicator;
  std::uint32_t step = 0;
  char name[32] = {};
  std::array<std::byte, payload_bytes_max> payload = {};
};
static_assert(sizeof(SetUpBlock) == 512 && std::is_trivially_copyable_v<SetUpBlock>);

/// Throws Error{mismatch}, with the same text on every rank, unless all blocks belong to one step
/// of one call.  Kinds are compared, not names: operations have cards, which say more.
void require_one_call(std::span<const SetUpBlock> all);

}  // namespace tutti::runtime
