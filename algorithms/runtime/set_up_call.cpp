#include "runtime/set_up_call.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <tutti/status.hpp>
#include <tutti/types.hpp>
#include <vector>

#include "bootstrap/describe.hpp"

namespace tutti::runtime {
namespace {

bool of_one_call(const SetUpBlock& one, const SetUpBlock& other) {
  return one.kind == other.kind && one.communicator == other.communicator &&
         one.step == other.step && one.payload_bytes == other.payload_bytes;
}

/// Ranks that make one call, in rank order.
struct Group {
  const SetUpBlock* block;
  std::vector<Rank> ranks;
};

std::vector<Group> groups_of(std::span<const SetUpBlock> all) {
  std::vector<Group> groups;
  for (std::uint32_t rank = 0; rank < all.size(); ++rank) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      return of_one_call(*group.block, all[rank]) &&
             std::strncmp(group.block->name, all[rank].name, sizeof all[rank].name) == 0;
    });
    if (found != groups.end())
      found->ranks.push_back(Rank{rank});
    else
      groups.push_back({&all[rank], {Rank{rank}}});
  }
  return groups;
}

/// Says of each group what sets it apart from the first one.
std::string text_of(const Group& group, const Group& first, bool several_communicators) {
  std::string text = bootstrap::name_ranks(group.ranks);
  text += group.ranks.size() == 1 ? " calls " : " call ";
  text.append(group.block->name, ::strnlen(group.block->name, sizeof group.block->name));
  if (several_communicators && group.block->communicator != 0)
    text += group.block->communicator == first.block->communicator ? " on one communicator"
                                                                   : " on another communicator";
  if (group.block->kind == first.block->kind && group.block->step != first.block->step)
    text += " (and is in step " + std::to_string(group.block->step) + " of it)";
  if (group.block->kind == first.block->kind &&
      group.block->payload_bytes != first.block->payload_bytes)
    text += " (and brings " + std::to_string(group.block->payload_bytes) + " bytes instead of " +
            std::to_string(first.block->payload_bytes) + ")";
  return text;
}

}  // namespace

void require_one_call(std::span<const SetUpBlock> all) {
  for (std::uint32_t rank = 1; rank < all.size(); ++rank)
    if (all[rank].version != all[0].version)
      throw Error(ErrorCode::mismatch, "rank " + std::to_string(rank) + " speaks protocol " +
                                           std::to_string(all[rank].version) + ", rank 0 " +
                                           std::to_string(all[0].version) +
                                           ": use one version of tutti everywhere");
  if (std::all_of(all.begin(), all.end(),
                  [&](const SetUpBlock& block) { return of_one_call(block, all[0]); }))
    return;
  const std::vector<Group> groups = groups_of(all);
  std::vector<std::uint64_t> communicators;
  for (const Group& group : groups)
    if (group.block->communicator != 0) communicators.push_back(group.block->communicator);
  std::sort(communicators.begin(), communicators.end());
  const bool several = std::adjacent_find(communicators.begin(), communicators.end(),
                                          std::not_equal_to<>()) != communicators.end();
  std::string text = "ranks make different calls: ";
  for (const Group& group : groups) {
    if (&group != &groups.front()) text += ", ";
    text += text_of(group, groups.front(), several);
  }
  throw Error(ErrorCode::mismatch,
              text + "; every rank has to make the same calls in the same order");
}

}  // namespace tutti::runtime
