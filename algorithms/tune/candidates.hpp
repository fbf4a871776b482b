// The schedules that a race tries for one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tune/choose.hpp"
#include "tune/knowledge.hpp"
#include "tune/plan_time.hpp"

namespace tutti::tune {

/// Returns different candidates for a race, in the order below: at most `count`, or, if that is
/// more, at most `alike_count`.  Those beyond `count` are of group 2, and take at most 4 % more
/// than the fastest candidate, too little for the model to tell them apart.
///   1. what choose() returns; the cheapest choice of each other family, if it costs at most 1.5
///      times as much as the cheapest of all, until there are count / 2 candidates (in a single
///      node, at any cost, until there are count - 1); and the cheapest choice of all;
///   2. sorted by the times of their events: up to twelve choices that cost at most a quarter more
///      than the cheapest one (none in a single node), and what beside() returns for the cheapest
///      one, for each tree of group 1, and for the fastest choices of a few further shapes.
///      beside() also tries the same number of messages in every round, 1 to 7 (V. End et al.,
///      INFOCOMP 2015).  Some latencies of trees are moved to the end: see on_both_sides_first();
///   3. the choice that is made without a tuning file, and then the remaining families.
/// For a `reproducible` allreduce of few ranks, all minimal_vectors() are considered.  A race asks
/// for each candidate by its name().  In a single node, where choose() without a file applies fixed
/// rules, all schedules that the node can run are considered; on up to 64 ranks, only one of
/// several schedules with the same plans is returned.
///
/// Prices are computed by following about `messages_max` messages, and group 2 is sorted by
/// following up to six times as many.  With messages_followed_max, a call takes 3 ms on average
/// over the cells of `tutti-tune --verify`, and at most 42 ms (Xeon).
std::vector<Choice> candidates(const CollectiveRequest& request, const Topology& topology,
                               const Knowledge& knowledge, std::size_t count,
                               std::size_t messages_max = messages_followed_max,
                               std::size_t alike_count = 0);

/// Whether both do the same on every rank, whatever they are called.
bool have_same_plans(const Choice& left, const Choice& right);

}  // namespace tutti::tune
