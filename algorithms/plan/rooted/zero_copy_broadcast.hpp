// Broadcast over several nodes whose payload is in nobody's registers: between nodes it is written
// from the user's buffer of one rank straight into that of another, and the ranks of a node read it
// in the buffer of the rank that has it there (core/plan.hpp, "Zero copy" and "By reference").
//
//   nodes {0 1} {2 3}, root 0
//
//   entries          2 --> 0                                     2 may be written
//   each piece       0 ==> 2: into its target    0 --> 1: reference, 1 reads
//                                                2 --> 3: reference, 3 reads
//   acknowledged     1 --> 0, 3 --> 2                            all has been read
//
// The nodes form a tree, and the ranks of each one another (rooted_tree.hpp).  A child on another
// node tells its parent that it has entered, and a child in the node, that it has read everything:
// then the parent may end its call.  So each pair of peers that send to each other stays in step,
// and two copies of the lines are enough.  The payload goes in pieces, each of which is passed on
// as soon as it is there, so that the network and the memory of the nodes work at the same time.
// No more than a few windows of pieces are on their way between two nodes (core/windows.hpp).
//
// Rounds: one of entries, one for each piece, one of acknowledgements.  Messages: P - 1 of each
// piece, of which those inside nodes are references, P - 1 without payload, and answers to windows.
// Scratch: a line for each message that a rank gets.  A payload is copied L - 1 times in a node of
// L ranks.
//
// Literature: rooted.hpp for the trees and the chain of nodes; V. Tipparaju, J. Nieplocha, D.
// Panda, "Fast collective operations using shared and remote memory access protocols on clusters",
// IPDPS 2003, for messages between nodes that land in users' buffers.
#pragma once

#include <cstdint>
#include <tutti/types.hpp>

#include "plan/core/plan.hpp"
#include "plan/rooted/rooted.hpp"

namespace tutti::plan {

/// The root's source gets into all other targets; the root's target is not touched.  `shape` has
/// more than one node, and each rank a target of its own.  `pieces`: 1 and more.
Plan zero_copy_broadcast(Rank self, const RootedShape& shape, std::uint16_t pieces);

}  // namespace tutti::plan
