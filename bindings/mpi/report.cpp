#include "report.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "after_call.hpp"
#include "expectation.hpp"
#include "handles.hpp"
#include "loaded_mpi.hpp"

namespace tutti::interposer {
namespace {

/// So many kinds of calls are priced, those first that took longest: a price may take 3 ms.
constexpr std::size_t priced_max = 200;
/// So many are shown.
constexpr std::size_t shown_max = 8;

std::int64_t now() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Numbers nodes in the order of their lowest ranks.
void renumber(std::vector<std::uint32_t>& node_of) {
  std::map<std::uint32_t, std::uint32_t> names;
  for (std::uint32_t& node : node_of)
    node = names.emplace(node, static_cast<std::uint32_t>(names.size())).first->second;
}

}  // namespace

constinit AfterCall after_call = nullptr;

Report& report() {
  static Report* const one = new Report;  // as interposer()
  return *one;
}

void Report::begin() {
  const MpiFunctions& mpi = own_mpi();
  int rank = 0, rank_count = 0, lowest = 0;
  mpi.Comm_rank(handles().world, &rank);
  mpi.Comm_size(handles().world, &rank_count);
  MPI_Comm node{};
  mpi.Comm_split_type(handles().world, MPI_COMM_TYPE_SHARED, 0, handles().no_info, &node);
  mpi.Allreduce(&rank, &lowest, 1, handles().int32, handles().min, node);
  mpi.Comm_free(&node);
  node_of_world_.resize(static_cast<std::size_t>(rank_count));
  mpi.Allgather(&lowest, 1, handles().int32, node_of_world_.data(), 1, handles().int32,
                handles().world);
  renumber(node_of_world_);
}

void Report::watch(Collective collective, Kind* kind) noexcept {
  watched_ = static_cast<std::size_t>(collective);
  watched_kind_ = kind;
  after_call = after;
  started_ = now();
}

Report::Kind& Report::kind_of(ProgramCommunicator& communicator, const ShapeKey& key,
                              const std::vector<std::size_t>& blocks) {
  if (!communicator.nodes_in_report)
    communicator.nodes_in_report = nodes_of(communicator.handle(), communicator.rank_count());
  const std::size_t nodes = *communicator.nodes_in_report;
  Kind& kind = kinds_[{key.collective, key.combining, key.op, key.type, key.root, key.element_bytes,
                       key.element_count, key.blocks_digest, nodes}];
  kind.key = key;
  kind.blocks = blocks;
  kind.nodes = nodes;
  return kind;
}

void Report::after(int) noexcept {
  const std::int64_t end = now();
  Report& self = report();
  const std::int64_t took = end - self.started_;
  self.reported_[self.watched_].in_mpi += took;
  if (self.watched_kind_ == nullptr) return;
  Kind& kind = *self.watched_kind_;
  ++kind.calls;
  kind.in_mpi += took;
  kind.fastest = std::min(kind.fastest, took);
}

std::size_t Report::nodes_of(MPI_Comm communicator, std::uint32_t rank_count) {
  const MpiFunctions& mpi = own_mpi();
  std::vector<int> ranks(rank_count), of_world(rank_count);
  std::iota(ranks.begin(), ranks.end(), 0);
  MPI_Group group{}, world{};
  mpi.Comm_group(communicator, &group);
  mpi.Comm_group(handles().world, &world);
  mpi.Group_translate_ranks(group, static_cast<int>(rank_count), ranks.data(), world,
                            of_world.data());
  mpi.Group_free(&group);
  mpi.Group_free(&world);
  std::vector<std::uint32_t> node_of(rank_count);
  for (std::uint32_t i = 0; i < rank_count; ++i) {
    // A spawned rank, which is not of the world, is taken to be a node of its own.
    const bool is_of_world =
        of_world[i] >= 0 && static_cast<std::size_t>(of_world[i]) < node_of_world_.size();
    node_of[i] = is_of_world ? node_of_world_[static_cast<std::size_t>(of_world[i])]
                             : static_cast<std::uint32_t>(node_of_world_.size()) + i;
  }
  renumber(node_of);
  const auto found = std::find(node_maps_.begin(), node_maps_.end(), node_of);
  if (found != node_maps_.end()) return static_cast<std::size_t>(found - node_maps_.begin());
  node_maps_.push_back(std::move(node_of));
  return node_maps_.size() - 1;
}

void Report::price() {
  const Expectation expectation;
  source_ = expectation.source();
  longest_first_.clear();
  std::vector<Kind*> kinds;
  for (auto& [key, kind] : kinds_)
    if (kind.calls != 0) kinds.push_back(&kind);
  std::sort(kinds.begin(), kinds.end(),
            [](const Kind* a, const Kind* b) { return a->in_mpi > b->in_mpi; });
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    Kind& kind = *kinds[i];
    longest_first_.push_back(&kind);
    kind.node_count = expectation.nodes(node_maps_[kind.nodes]);
    const std::optional<double> expected =
        i < priced_max ? expectation.of(kind.key, kind.blocks, node_maps_[kind.nodes])
                       : std::nullopt;
    if (!expected) continue;
    kind.expected = *expected;
    Reported& sum = reported_[static_cast<std::size_t>(kind.key.collective)];
    sum.priced_calls += kind.calls;
    sum.priced += kind.in_mpi;
    sum.expected += std::llround(static_cast<double>(kind.calls) * *expected);
    sum.fastest += kind.calls * kind.fastest;
  }
}

std::string Report::details() const {
  std::string text = "tutti: tuning file: " + source_ + "\n";
  if (!longest_first_.empty())
    text += "tutti: what took longest on rank 0, microseconds for each call:\n";
  for (std::size_t i = 0; i < std::min(shown_max, longest_first_.size()); ++i) {
    const Kind& kind = *longest_first_[i];
    const auto calls = static_cast<double>(kind.calls);
    char line[300], expected[40] = "no price";
    if (kind.expected > 0) std::snprintf(expected, sizeof expected, "%.2f", kind.expected / 1e3);
    std::snprintf(line, sizeof line,
                  "tutti:   %s of %llu bytes, %zu ranks on %u node%s, %lld calls: MPI %.2f, its "
                  "fastest %.2f; tutti %s\n",
                  name_of(kind.key.collective), static_cast<unsigned long long>(kind.key.bytes()),
                  node_maps_[kind.nodes].size(), kind.node_count, kind.node_count == 1 ? "" : "s",
                  static_cast<long long>(kind.calls),
                  static_cast<double>(kind.in_mpi) / calls / 1e3,
                  static_cast<double>(kind.fastest) / 1e3, expected);
    text += line;
  }
  return text;
}

}  // namespace tutti::interposer
