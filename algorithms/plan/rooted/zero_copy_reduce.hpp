// Reduce among ranks that read each other's memory, of a payload that stays in their buffers until
// it is combined (core/plan.hpp, "By reference").
//
// Idea.  The payload is cut into parts, one for each rank in every turn.  A rank combines its parts
// out of the sources of all others: the root into its target, another rank into partials, of which
// it tells the root, which copies them into its target.  So all work at the same time, and no
// source is copied.  Parts are short, so that the root does not wait long for the first one.
//
//   P = 3, root 0, one turn
//
//   rank 0        1        2
//        0 <----- 0 <----- 0     references to sources, to the rank that combines the part
//        1 -----> 1 <----- 1
//        2 -----> 2 -----> 2
//        1 <===== 1              references to what has been combined, which the root copies
//        2 <============== 2
//        a -----> a              all has been read
//        a --------------> a
//
// Cost, for P ranks and a payload B: each rank combines B / P of all others, and the root copies
// (P - 1) / P B.  Messages: a reference to each source of a part and to each result, and P - 1
// acknowledgements.  Rounds: three.  Scratch: partials of B / P together on each rank but the root
// (of a payload in several chunks, for one of them), and a line for each message.
//
// A rank tells of a result when it has read all sources of that part, and the root acknowledges
// when it has copied all results.  So nobody reads the source or the partials of a rank that has
// the acknowledgement, and whoever has none yet waits for nothing else: two copies of partials and
// lines are enough.  The root writes a part of its target when all have read that part of its
// source, so both may be the same memory.
//
// Operands are in no order of ranks.
//
// Literature: single_copy.hpp; reduce-scatter and gather by R. Thakur, R. Rabenseifner, W. Gropp,
// IJHPCA 19 (1), 2005.
#pragma once

#include <cstdint>
#include <tutti/types.hpp>

#include "plan/core/plan.hpp"

namespace tutti::plan {

struct ZeroCopyReduce {
  Rank root{0};
  std::uint32_t rank_count = 2;
  std::uint16_t turns = 1;
};

/// Ranks times turns: as many parts has the plan.
std::uint32_t zero_copy_parts(const ZeroCopyReduce& shape);

/// Whether slots and parts suffice.
bool is_zero_copy_reduce(const ZeroCopyReduce& shape);

/// Reduce of `self`, for operators that commute.  Needs is_zero_copy_reduce(shape).
Plan zero_copy_reduce(Rank self, const ZeroCopyReduce& shape);

}  // namespace tutti::plan
