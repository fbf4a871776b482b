// How nodes enter a barrier or an allreduce: all ranks alike, by leaders, in lanes, by domains.
// The schedule across the nodes is chosen like any other one, for as many ranks as there are nodes.
#pragma once

#include <optional>
#include <string>

#include "plan/allreduce/zero_copy_allreduce.hpp"
#include "plan/rooted/zero_copy_reduce.hpp"
#include "tune/registry.hpp"

namespace tutti::tune {

/// Returns the hierarchy that is asked for, or the only one that is considered; none: the prices of
/// all decide.
std::optional<Hierarchy> hierarchy_of(const Query& query);

/// Whether two ranks of a node combine where the payloads are, each its half.
bool is_read_in_place(const Query& query);

/// Whether the payload of an allreduce stays in the users' registered buffers although ranks share
/// nodes.
bool is_zero_copy_in_nodes(const Query& query);
/// Whether it does if all buffers lie in segments, and the CPUs of a node share a cache.
bool suits_zero_copy_in_nodes(const Query& query);
/// Why a call whose buffers lie in segments is copied all the same, as a line of an explanation;
/// empty: this is not the reason.  No row says it, because ranks do not tell each other where their
/// buffers lie if that changes nothing.
std::string why_copied_from_segments(const Query& query);
/// The lanes of that allreduce.
plan::ZeroCopyLanes zero_copy_lanes_of(const Query& query);

/// Whether the payload of a reduce stays in the sources of all ranks, if these lie in segments,
/// until it is combined.
bool is_zero_copy_reduce(const Query& query);
/// Whether it would stay there if all CPUs of a node shared a cache.
bool suits_zero_copy_reduce(const Query& query);
/// The pieces of that reduce.
plan::ZeroCopyReduce zero_copy_reduce_of(const Query& query);

/// Why the ranks of a node cannot have one target; empty: they can.
std::string why_not_shared_target(const CollectiveRequest& request, const Topology& topology);

/// Whether there is a zero-copy plan, if all ranks' buffers are registered.  All ranks get the same
/// result.
bool may_be_zero_copy(const CollectiveRequest& request, const Topology& topology);

}  // namespace tutti::tune
