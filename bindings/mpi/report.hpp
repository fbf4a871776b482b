// TUTTI_MPI=report: MPI does every call; how long it took, and how long tutti would be expected to
// take.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "program_communicator.hpp"
#include "shape.hpp"

namespace tutti::interposer {

/// What a rank has seen of a collective; times in nanoseconds.
struct Reported {
  std::int64_t in_mpi = 0;
  /// Calls that tutti would take, and whose time the model can predict.
  std::int64_t priced_calls = 0;
  std::int64_t priced = 0;    // in MPI
  std::int64_t expected = 0;  // of tutti
  /// `priced` if every call had taken as long as the fastest of its kind.  The excess may be
  /// waiting for late ranks, which no library can shorten.
  std::int64_t fastest = 0;
};

class Report {
 public:
  /// Finds out which ranks share a node.  Collective over MPI_COMM_WORLD.
  void begin();

  /// Calls that are priced together, because the same operation would do them.
  struct Kind;
  Kind& kind_of(ProgramCommunicator& communicator, const ShapeKey& key,
                const std::vector<std::size_t>& blocks);

  /// A call goes to MPI next; if tutti would take it, its kind is known.
  void watch(Collective collective, Kind* kind) noexcept;

  /// Asks the model; found() is complete then.
  void price();
  const Reported& found(Collective collective) const noexcept {
    return reported_[static_cast<std::size_t>(collective)];
  }
  /// For people: what prices are from, and what took longest on this rank; lines.
  std::string details() const;

 private:
  /// What tells kinds apart: what a ShapeKey has, and the nodes.
  using KindKey = std::tuple<Collective, Combining, std::uint8_t, std::uint8_t, std::int32_t,
                             std::uint32_t, std::uint64_t, std::uint64_t, std::size_t>;

  static void after(int result) noexcept;
  std::size_t nodes_of(MPI_Comm communicator, std::uint32_t rank_count);

  std::vector<std::uint32_t> node_of_world_;
  std::vector<std::vector<std::uint32_t>> node_maps_;
  std::map<KindKey, Kind> kinds_;
  std::vector<const Kind*> longest_first_;
  std::array<Reported, collective_count> reported_ = {};
  std::size_t watched_ = 0;
  Kind* watched_kind_ = nullptr;
  std::int64_t started_ = 0;
  std::string source_;
};

struct Report::Kind {
  ShapeKey key = {};
  std::vector<std::size_t> blocks = {};  // as Shape::blocks
  std::size_t nodes = 0;                 // which of node_maps_
  std::int64_t calls = 0;
  std::int64_t in_mpi = 0;
  std::int64_t fastest = INT64_MAX;
  double expected = 0;  // of one call; 0: not known
  std::uint32_t node_count = 1;
};

Report& report();

}  // namespace tutti::interposer
