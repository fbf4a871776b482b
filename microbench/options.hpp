// The command line of tutti-bench as a value.  Options whose feature does not exist are unknown.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tutti/algorithm.hpp>
#include <tutti/communicator.hpp>
#include <tutti/reduction.hpp>
#include <vector>

namespace tutti::bench {

enum class Collective : std::uint8_t {
  floor,
  oneway,
  memcpy,
  wimm,
  barrier,
  allreduce,
  broadcast,
  reduce,
  reduce_scatter,
  allgather,
  allgatherv,
  alltoall,
  alltoallv,
  gather,
  gatherv,
  scatter,
  scatterv,
  scan,
  exscan,
};

const char* name_of(Collective collective) noexcept;
std::optional<Collective> collective_of(std::string_view name);

constexpr bool is_probe(Collective collective) noexcept {
  return collective == Collective::floor || collective == Collective::oneway ||
         collective == Collective::memcpy || collective == Collective::wimm;
}
/// Whether a probe is about this machine's memory alone.
constexpr bool is_memory_probe(Collective collective) noexcept {
  return is_probe(collective) && collective != Collective::wimm;
}

constexpr bool is_rooted(Collective collective) noexcept {
  return collective == Collective::broadcast || collective == Collective::reduce ||
         collective == Collective::gather || collective == Collective::gatherv ||
         collective == Collective::scatter || collective == Collective::scatterv;
}
/// Whether some ranks wait for no other rank.  Such calls are timed one by one, from the start of
/// the root (in scans, of rank 0) to the end of the last rank.
constexpr bool is_timed_from_root(Collective collective) noexcept {
  return is_rooted(collective) || collective == Collective::scan ||
         collective == Collective::exscan;
}
/// Whether a collective combines elements.
constexpr bool is_reduction(Collective collective) noexcept {
  return collective == Collective::allreduce || collective == Collective::reduce ||
         collective == Collective::reduce_scatter || collective == Collective::scan ||
         collective == Collective::exscan;
}

/// What is measured of the verbs layer alone.
enum class VerbsCase : std::uint8_t {
  latency,       // half a round trip of writes with immediate, by size
  message_rate,  // of writes with immediate of 8 bytes, many in flight
  bandwidth,     // of writes, by size
  fan_out,       // message rate over 1 to 64 queue pairs
  incast,        // messages of several ranks to one at the same time
  shared_port,   // message rate and bandwidth of all ranks of a node together
  registration,  // of memory, and its end
  connection,    // a queue pair until it is ready to send, and all of a connection
};
const char* name_of(VerbsCase which) noexcept;

/// How a payload is distributed over the ranks, in collectives whose blocks may differ: the
/// distributions of M. A. Al Ahad et al. (PAW-ATM 2018, II.B).
enum class Distribution : std::uint8_t {
  regular,     // the same
  decreasing,  // linearly, the last rank has nothing
  single,      // rank 0 has everything ("broadcast" there)
};

const char* name_of(Distribution distribution) noexcept;

constexpr bool has_distribution(Collective collective) noexcept {
  return collective == Collective::allgatherv || collective == Collective::gatherv ||
         collective == Collective::scatterv;
}

/// A way to run the collectives of tutti; of several, there is a row for each.
struct Way {
  std::string name;                              // as it was given
  std::optional<std::size_t> single_copy_bytes;  // empty: as the environment says, or measured
  bool in_node_memory = false;                   // the ranks of a node have one result
  std::optional<TuningMode> tuning = {};         // empty: as the environment says
  std::string tuning_file = {};
  std::string trace_file = {};  // pattern, as TUTTI_TRACE; empty: as the environment says
};

enum class Format : std::uint8_t { table, json, csv };

const char* name_of(Format format) noexcept;

/// How the ranks of a run are started.
struct RankOptions {
  std::optional<std::uint32_t> local;
  std::vector<std::uint32_t> ranks_per_node;  // empty: found, or imposed by the environment
  std::optional<tutti::Placement> placement;
  bool bind = true;
  bool virtual_time = false;
  std::string fabric;  // preset or file; empty: the device as it is
};

struct Options : RankOptions {
  std::vector<Collective> collectives;  // in the order given, each once; or ...
  std::vector<VerbsCase> verbs_cases;   // ... these
  bool all_verbs_cases = false;         // those that this run can measure
  bool has_bytes = false;               // `bytes` are those of the command line
  bool all = false;                     // probes only where they are possible
  std::vector<std::size_t> bytes = {8, 64, 512, 1024, 4096, 16384};
  ElementType dtype = ElementType::float64;
  BuiltIn op = BuiltIn::sum;  // none: the user's operator of this program
  Agreement agreement = Agreement::identical;
  Algorithm algorithm = Algorithm::automatic;         // of allreduce
  Across across = Across::automatic;                  // of barrier and allreduce
  Tree tree = Tree::automatic;                        // of broadcast and reduce
  Distribution distribution = Distribution::regular;  // of allgatherv, gatherv, scatterv
  Rank root{0};
  std::vector<std::uint32_t> per_round;  // empty: the library's rule
  std::optional<std::size_t> iterations;
  std::size_t warmup = 200;
  bool against_mpi = false;
  bool against_perftest = false;
  bool check = false;
  bool in_segments = false;
  bool in_node_memory = false;   // beside each row, one of it; then it is one of the ways, too
  std::string trace_file;        // beside each row, one that is traced; it is a way, too
  bool overlap = false;          // with computing
  bool rotates_root = false;     // after each call, of two ranks
  std::optional<Notify> notify;  // empty: as the environment says
  std::vector<Way> ways = {{"default", {}}};  // of --single-copy or --tuning; never empty
  std::optional<CheckLevel> check_level;
  std::uint32_t delay_us = 0;
  std::uint64_t seed = 1;
  Format format = Format::table;
  bool brief = false;  // of a table: what a first look needs
  std::string out;     // empty: standard output
  std::string record;  // empty: none; the rows are appended there as JSON
  std::string expect;  // empty: none; a file of bounds
  bool tripwire = false;

  std::string help;  // not empty: print this and end
};

inline std::size_t element_bytes(ElementType type) {
  return built_in_reduction(BuiltIn::sum, type).element_bytes;
}

/// `arguments` as main() gets them.  Throws Error{invalid_argument} in one line that names the
/// value, what was expected and what to do.
Options parse_options(std::span<const char* const> arguments);

}  // namespace tutti::bench
