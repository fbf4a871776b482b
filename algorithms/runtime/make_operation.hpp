// How the ranks of a communicator make an operation together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tutti/communicator.hpp>
#include <tutti/operation.hpp>
#include <vector>

#include "engine/execution.hpp"
#include "plan/core/plan.hpp"
#include "tune/request.hpp"

namespace tutti::runtime {

/// Where the blocks of a collective of blocks lie on this rank.
struct Blocks {
  std::vector<engine::Part> of_rank;  // element counts are not needed
  std::size_t longest_bytes = 0;      // of all ranks
};

/// A request that is complete: all ranks have sent their sizes.
struct Completed {
  tune::CollectiveRequest asked;
  Blocks blocks = {};  // of a collective of blocks
};

/// What a collective hands to make_operation().
struct OperationRequest {
  const char* collective = "";
  tune::CollectiveRequest asked = {};  // as far as this rank knows it by itself
  const void* source = nullptr;
  void* target = nullptr;
  std::size_t chunk_bytes_max = SIZE_MAX;  // of a payload that is not of blocks
  std::vector<Rank> members = {};          // who takes part, if not all do: the plan is theirs
  /// Sizes that this rank sends to all others first; as many numbers on every rank.
  std::vector<std::uint64_t> row = {};
  bool has_equal_rows = false;  // of a few numbers, which mostly are the same on all ranks
  /// Checks the arguments of this rank, and completes what is asked by the rows of all ranks.  May
  /// throw Error, which every rank then hears.  Changes nothing.
  std::function<Completed(std::span<const std::uint64_t> rows)> complete = {};
  // What first calls add (first_call.hpp).
  bool is_trial = false;       // of a schedule; nobody else will use the operation
  std::string only = {};       // the choice to go by
  std::string chosen_by = {};  // why, as a line
  /// This rank's plan; by default what is chosen.
  std::function<plan::Plan(const tune::CollectiveRequest& asked)> plan_of = {};
};

/// Takes the last number out of each rank's row, and returns these numbers.  `rows` are as many as
/// ranks, all of one length.
std::vector<std::uint64_t> split_off_last(std::vector<std::uint64_t>& rows, std::size_t rank_count);

/// Collective: one set-up, from top to bottom.  Throws Error on all ranks.
std::unique_ptr<Operation::Implementation> set_up(Communicator::Implementation& communicator,
                                                  const OperationRequest& request);

/// Collective: agrees with the other ranks that this step succeeded everywhere and that they ask
/// for the same, then connects.
Operation make_operation(Communicator& communicator, const OperationRequest& request);

}  // namespace tutti::runtime
