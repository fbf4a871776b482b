// Ring (pipelined): allreduce for large payloads on few connections.  The payload is cut into P
// blocks; each travels once round the ring and is combined on its way, until its last rank has it
// complete, and once more to give all ranks the result.  A block is cut into sub-blocks, which
// follow each other: while one is combined, the next one is on its way.
//
// P = 3, a rank's position in the ring in the place of its name; blocks a, b, c
//   round 0   0 sends a to 1, 1 sends b to 2, 2 sends c to 0
//   round 1   0 sends c (2 o 0), 1 sends a (0 o 1), 2 sends b (1 o 2); complete when received:
//             b on 0, c on 1, a on 2
//   round 2   0 sends b, 1 sends c, 2 sends a
//   round 3   and so on: 1 sends b, 2 sends c, 0 sends a
//
// Cost per rank.  2 (P - 1) rounds of one message for each sub-block, to one rank; 2 (P - 1)/P
// payload bytes sent and (P-1)/P combined: no allreduce sends less.  Two connections, on which P +
// 1 messages of each sub-block can be on their way.  Scratch: 2 (P - 1)/P payloads of partials and
// as many of slots.  All ranks have one expression, in the order of the ring, which begins
// elsewhere for each block: for operators that commute.
//
// Zero-copy, the first block is sent from the source; what is complete is combined in the target
// and written into the next rank's target from there.
//
// Literature: P. Patarasuk, X. Yuan, JPDC 69 (2), 2009 ("Bandwidth optimal all-reduce algorithms
// for clusters of workstations"); the pipelined ring of M. A. Al Ahad et al. 2018, IV.A, whose
// stages have to count k from 0 to P - 2 both.
#pragma once

#include <cstdint>
#include <span>

#include "plan/core/plan.hpp"

namespace tutti::plan {

/// Whether there are slots and parts enough.
bool is_ring(std::uint32_t rank_count, std::uint32_t sub_blocks) noexcept;

/// Allreduce plan of `self`, of P times `sub_blocks` parts.  Needs is_ring().  `node_of`: of each
/// rank, or empty: ranks of a node follow each other in the ring.
Plan ring_allreduce(Rank self, std::uint32_t rank_count, std::uint32_t sub_blocks,
                    std::span<const Node> node_of, Buffers buffers = Buffers::anywhere);

}  // namespace tutti::plan
