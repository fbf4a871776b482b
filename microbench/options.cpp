#include "microbench/options.hpp"
#include "microbench/command_line.hpp"
#include "microbench/expectation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <tutti/detail/names.hpp>
#include <tutti/status.hpp>

#include "microbench/measure.hpp"
#include "microbench/results.hpp"
#include "microbench/verbs_session.hpp"
#include "microbench/words.hpp"
#include "runtime/settings.hpp"
#include "verbs/soft/fabric_model.hpp"

namespace tutti::bench {
namespace {

/// In the order of the enumerators.
constexpr const char* collective_names[] = {
    "floor",   "oneway",         "memcpy",    "wimm",       "barrier",  "allreduce", "broadcast",
    "reduce",  "reduce_scatter", "allgather", "allgatherv", "alltoall", "alltoallv", "gather",
    "gatherv", "scatter",        "scatterv",  "scan",       "exscan"};
constexpr std::span names(collective_names);
constexpr std::size_t probes_count = static_cast<std::size_t>(Collective::barrier);
static_assert(std::size(collective_names) == static_cast<std::size_t>(Collective::exscan) + 1);

constexpr auto every_verbs_case = detail::enumerators<VerbsCase::connection>;
constexpr const char* every_verbs_case_name = "verbs";  // those that a run can measure
/// Options that say something about collectives alone.
constexpr const char* options_of_collectives[] = {
    "--dtype",       "--op",          "--across", "--tree",        "--distribution", "--root",
    "--per-round",   "--algorithm",   "--notify", "--single-copy", "--agreement",    "--warmup",
    "--segments",    "--node-memory", "--trace",  "--overlap",     "--rotate-root",  "--check",
    "--check-level", "--delay-us",    "--seed",   "--record",      "--expect",       "--tripwire"};

constexpr auto every_check_level = detail::enumerators<CheckLevel::collective>;
constexpr ElementType user_type = ElementType::uint64;  // of --op user
constexpr auto every_distribution = detail::enumerators<Distribution::single>;
constexpr auto every_format = detail::enumerators<Format::csv>;

std::optional<VerbsCase> verbs_case_of(std::string_view name) {
  for (const VerbsCase one : every_verbs_case)
    if (name == name_of(one)) return one;
  return {};
}

void parse_verbs_cases(const std::string& text, Options& options) {
  options.verbs_cases = parse_list("COLLECTIVE", text, "name", [](const std::string& word) {
    const std::optional<VerbsCase> found = verbs_case_of(word);
    if (!found)
      refuse(
          "COLLECTIVE", word,
          fmt::format("{}, or no case of the verbs layer beside it: these are a run of their own",
                      names_of(every_verbs_case)));
    return *found;
  });
}

void parse_collectives(const std::string& text, Options& options) {
  if (text == every_verbs_case_name) {
    options.all_verbs_cases = true;
    options.verbs_cases.assign(every_verbs_case.begin(), every_verbs_case.end());
    return;
  }
  const std::vector<std::string> words = split(text);
  if (std::any_of(words.begin(), words.end(),
                  [](const std::string& word) { return verbs_case_of(word).has_value(); }))
    return parse_verbs_cases(text, options);
  if (text == "all") {
    options.all = true;
    for (const char* const name : collective_names)
      options.collectives.push_back(*collective_of(name));
    return;
  }
  options.collectives = parse_list("COLLECTIVE", text, "name", [](const std::string& word) {
    const std::optional<Collective> found = collective_of(word);
    if (!found)
      refuse("COLLECTIVE", word,
             fmt::format("all, or some of {}, {}; or {}, or some of {}",
                         fmt::join(names.subspan(probes_count), ", "),
                         fmt::join(names.first(probes_count), ", "), every_verbs_case_name,
                         names_of(every_verbs_case)));
    return *found;
  });
}

void parse_bytes(const std::string& text, Options& options) {
  constexpr std::uint64_t message_max = 256u << 20;  // of the verbs layer's cases
  options.has_bytes = true;
  options.bytes = parse_list("--bytes", text, "size", [&](const std::string& word) -> std::size_t {
    const std::uint64_t bytes = runtime::parse_bytes(word, "--bytes");
    if (options.verbs_cases.empty())
      require_whole(word, bytes, options.dtype, element_bytes(options.dtype));
    else if (bytes < 1 || bytes > message_max)
      refuse("--bytes", word, "1 to 256M bytes for the cases of the verbs layer");
    return bytes;
  });
}

/// Each word is a way, which `way_of` makes.
template <class WayOf>
void parse_ways(const char* option, const std::string& text, Options& options, WayOf&& way_of) {
  options.ways.clear();
  for (const std::string& word : split(text)) {
    if (std::any_of(options.ways.begin(), options.ways.end(),
                    [&](const Way& one) { return one.name == word; }))
      refuse(option, text, fmt::format("each way once; {} is there twice", word));
    options.ways.push_back(way_of(word));
  }
}

void parse_single_copy(const std::string& text, Options& options) {
  parse_ways("--single-copy", text, options, [](const std::string& word) -> Way {
    if (word == "measured")
      refuse("--single-copy", word, "default, never, or bytes, for example 4K");
    if (word == "default") return {.name = word, .single_copy_bytes = {}};
    return {.name = word, .single_copy_bytes = runtime::parse_single_copy(word, "--single-copy")};
  });
}

void parse_tuning(const std::string& text, Options& options) {
  parse_ways("--tuning", text, options, [&](const std::string& word) -> Way {
    if (word.empty()) refuse("--tuning", text, "default, off, or the name of a tuning file");
    Way way{.name = word, .single_copy_bytes = {}};
    if (word == "off") way.tuning = TuningMode::off;
    if (word == "off" || word == "default") return way;
    way.tuning = TuningMode::file;
    way.tuning_file = word;
    return way;
  });
}

/// Beside the first way of --single-copy, the same with one result a node.
void add_node_memory(Options& options) {
  const auto may_share = [](Collective one) {
    return one == Collective::allreduce || one == Collective::broadcast ||
           one == Collective::allgather || one == Collective::allgatherv;
  };
  for (const Collective collective : options.collectives)
    if (!may_share(collective) && !is_probe(collective))
      refuse("--node-memory", name_of(collective), "allreduce, broadcast, allgather or allgatherv");
  if (options.check)
    refuse("--node-memory", "--check",
           "one of them: checking fills the result of each rank before a call, and a node has one");
  Way way = options.ways.front();
  way.name = "node memory";
  way.in_node_memory = true;
  options.ways.push_back(std::move(way));
}

/// Adds a way that is like the first one, but traced.
void add_traced(Options& options) {
  if (std::getenv("TUTTI_TRACE") != nullptr)
    refuse("--trace", options.trace_file,
           "no TUTTI_TRACE beside it, which would trace all rows; unset one of them");
  Way way = options.ways.front();
  way.name = "traced";
  way.trace_file = options.trace_file;
  options.ways.push_back(std::move(way));
}

/// The options as text, before they are parsed.
struct Words {
  std::string collectives, bytes, dtype, op, root;
  std::string ranks_per_node, placement, per_round, agreement, algorithm, across, tree, notify;
  std::string distribution, single_copy, tuning;
  std::string iterations, warmup, against, check_level, delay_us, seed, bind, format, local;
};

constexpr const char* virtual_fabric_default = "fdr";

const char* name_of_binding(bool bind) {
  return bind ? "auto" : "none";
}

template <class Value>
std::string or_default(const std::string& help, const Value& value) {
  return fmt::format("{}; default {}", help, value);
}

std::string iterations_by_default() {
  return fmt::format(
      "{} up to 1K, {} up to 64K, {} above, {} where ranks share CPUs, {} in virtual "
      "time; checked {}",
      iterations_default(1 << 10, false), iterations_default(64 << 10, false),
      iterations_default(SIZE_MAX, false), iterations_default(SIZE_MAX, true),
      virtual_calls_default, check_calls_default);
}

/// Declares all options.  `options` still has the defaults, which the help shows.
void declare(CommandLine& line, Words& words, Options& options) {
  const runtime::ContextSettings library;
  words.op = name_of(options.op);
  words.bind = name_of_binding(options.bind);
  words.format = name_of(options.format);
  line.add(
      "COLLECTIVE", words.collectives,
      fmt::format("all, or some of {} and the probes {}; or, in a run of their own, some cases "
                  "of the verbs layer, or {} for all that the ranks can measure: {}",
                  fmt::join(names.subspan(probes_count), ","),
                  fmt::join(names.first(probes_count), ","), every_verbs_case_name,
                  names_of(every_verbs_case)));
  line.add("--bytes", words.bytes,
           or_default(
               "contribution of each rank (for alltoall(v), gather(v) and scatter(v): of each "
               "block), e.g. 8,1K,1M; for the verbs layer's cases, each of which has sizes of its "
               "own: of messages, or of regions",
               fmt::format("{}", fmt::join(options.bytes, ","))));
  line.add("--dtype", words.dtype,
           or_default("int32, uint32, int64, uint64, float, double, half or bfloat16",
                      name_of(options.dtype)) +
               fmt::format(", of --op user {}", name_of(user_type)));
  line.add(
      "--op", words.op,
      or_default("sum, prod, min, max, band, bor, bxor, land, lor, or user: an operator of this "
                 "program that is not commutative (uint64)",
                 name_of(options.op)));
  line.add("--ranks-per-node", words.ranks_per_node,
           "imposed node shape, e.g. 2 or 3,1,2; 1: all messages go through the device; "
           "default: the ranks of a host are a node");
  line.add("--placement", words.placement,
           or_default("how ranks are placed on imposed nodes: block, cyclic or random",
                      name_of(library.placement)) +
               ", or TUTTI_PLACEMENT");
  line.add(
      "--across", words.across,
      or_default("how barrier and allreduce use nodes that ranks share: automatic, flat (over all "
                 "ranks), leader (one rank of each node) or lanes (a part of the payload for "
                 "each)",
                 name_of(options.across)));
  line.add("--tree", words.tree,
           or_default("tree of broadcast and reduce, over the nodes or in the only one: " +
                          names_of(every_tree),
                      name_of(options.tree)));
  line.add(
      "--distribution", words.distribution,
      or_default("how the payload, --bytes for each rank, is distributed over the blocks of "
                 "allgatherv, gatherv and scatterv: regular, decreasing (linearly, to nothing) or "
                 "single (all in rank 0's)",
                 name_of(options.distribution)));
  line.add(
      "--root", words.root,
      or_default("root of broadcast, reduce, gather(v) and scatter(v)", index_of(options.root)));
  line.add("--per-round", words.per_round,
           "messages per round at most, e.g. 3,2,1; superfluous messages are not sent; default: "
           "the library's rule");
  line.add("--algorithm", words.algorithm,
           or_default("schedule of allreduce, and if it is shared_ring of allgather(v) and "
                      "reduce_scatter: " +
                          names_of(every_algorithm()),
                      name_of(options.algorithm)) +
               ": by operator, agreement and size");
  line.add("--notify", words.notify,
           or_default("how messages of at most 56 bytes to other nodes say that they are there: "
                      "immediate, or flag, a word that is polled",
                      name_of(library.notify)) +
               ", or TUTTI_NOTIFY");
  line.add("--single-copy", words.single_copy,
           "from how many bytes on ranks of a node read each other's buffers: default, never, or "
           "bytes (0: always); several, e.g. default,never, alternate in the same run, a row for "
           "each; default: TUTTI_SINGLE_COPY_BYTES, or as measured");
  line.add("--tuning", words.tuning,
           "by what schedules are chosen: default, off (untuned), or a tuning file; several, e.g. "
           "off,tuning.json, alternate in the same run, a row for each; default: TUTTI_TUNING and "
           "TUTTI_TUNING_FILE");
  line.add("--agreement", words.agreement,
           or_default("identical, reproducible or relaxed", name_of(options.agreement)) +
               ", or the strongest that --algorithm gives");
  line.add(
      "--iterations", words.iterations,
      or_default("timed calls of each row, and checked calls", iterations_by_default()) +
          fmt::format("; of the verbs layer's cases samples, default {}", verbs_samples_default));
  line.add("--warmup", words.warmup,
           or_default("untimed calls before the first timed one", options.warmup));
  line.add("--against", words.against,
           "mpi: alternate with MPI in the same run; perftest, for the verbs layer's cases: "
           "alternate with ib_write_lat and ib_write_bw; default: tutti alone");
  line.add_flag("--segments", options.in_segments,
                "place buffers in memory that peers may write (tutti::Segment), in the arena: "
                "raise TUTTI_ARENA_BYTES for large ones");
  line.add_flag(
      "--node-memory", options.in_node_memory,
      "with allreduce, broadcast, allgather and allgatherv: beside each row, and by turns "
      "with it, one whose result lies once in the memory of each node "
      "(tutti::Scope::node)");
  line.add("--trace", options.trace_file,
           "beside each row, and by turns with it, one whose calls are traced into this file, as "
           "TUTTI_TRACE has it, e.g. trace.%r.json");
  line.add_flag("--overlap", options.overlap,
                "print how much of a call hides behind as long a computation that calls test(), "
                "and what share of it start() and test() take, which cannot be hidden");
  line.add_flag("--rotate-root", options.rotates_root,
                "with two ranks: the root changes after each call, so that a call is one "
                "hand-over; else calls are timed one by one after a barrier, with its skew");
  line.add_flag("--check", options.check,
                "compare every result of a further pass with a reference");
  line.add("--check-level", words.check_level,
           or_default("off, local or collective", name_of(library.check)) + ", or TUTTI_CHECK");
  line.add("--delay-us", words.delay_us,
           or_default("longest random delay before each checked call", options.delay_us));
  line.add("--seed", words.seed,
           or_default("seed of inputs and of --delay-us; a network's faults have their own",
                      options.seed));
  line.add("--bind", words.bind,
           or_default("auto or none: bind ranks to distinct cores", words.bind));
  line.add("--format", words.format, or_default("table, json or csv", words.format));
  line.add_flag("--brief", options.brief,
                "a table without what a first look does not need: deviations, extremes, and how "
                "samples were taken");
  line.add("--out", options.out, "file to write to; default: standard output");
  line.add("--record", options.record,
           "append the rows to this file, too, as JSON; tutti-bench summary reads it");
  line.add("--expect", options.expect,
           "file of bounds such as \"allreduce 8 <= 1.6 wimm\" (microbench/targets.txt): judges "
           "each row by its bounds; exit status 3 if one is not met");
  line.add_flag(
      "--tripwire", options.tripwire,
      fmt::format("with --expect: judge by the second column, the tripwires; a bound that "
                  "is not met is measured again, up to {} times in all, and the best "
                  "counts",
                  tripwire_tries));
  line.add("--local", words.local,
           "fork that many ranks on this machine; default: the ranks are those of mpirun or "
           "TUTTI_RANK");
  line.add("--fabric", options.fabric,
           "network that the software device emulates: " + verbs::soft::fabric_preset_names() +
               ", or a JSON file; default: TUTTI_SOFT_FABRIC, or the device as it is");
  line.add_flag("--virtual-time", options.virtual_time,
                fmt::format("calls in simulated time on that network (default {}); needs --local",
                            virtual_fabric_default));
}

void parse_reduction(const Words& words, Options& options) {
  options.op = parse_name(every_operator, "--op", words.op);
  const bool user = options.op == BuiltIn::none;
  if (!words.dtype.empty())
    options.dtype = parse_name(every_type, "--dtype", words.dtype);
  else if (user)
    options.dtype = user_type;
  if (user && options.dtype != user_type)
    refuse("--dtype", words.dtype, "uint64 for --op user, whose elements are two packed numbers");
  if (!user) require_defined(options.op, options.dtype);
  if (!words.algorithm.empty())
    options.algorithm = parse_name(every_algorithm(), "--algorithm", words.algorithm);
  const bool shows =
      !user && tune::order_shows_in_bits(built_in_reduction(options.op, options.dtype));
  if (!words.agreement.empty())
    options.agreement = parse_name(every_agreement, "--agreement", words.agreement);
  else if (const auto agreement = agreement_of(options.algorithm); agreement && shows)
    options.agreement = *agreement;
}

void understand_fabric(Options& options) {
  if (options.virtual_time && !options.local)
    throw Error(ErrorCode::invalid_argument,
                "--virtual-time: expected --local N, whose ranks share a clock; add it");
  if (const char* given = std::getenv("TUTTI_SOFT_FABRIC"); given && options.fabric.empty())
    options.fabric = given;
  if (options.virtual_time && options.fabric.empty()) options.fabric = virtual_fabric_default;
  if (!options.fabric.empty()) (void)verbs::soft::read_fabric_model(options.fabric);
  if (!options.virtual_time) return;
  if (options.overlap)
    throw Error(ErrorCode::invalid_argument,
                "--overlap with --virtual-time: expected real time, in which computing takes some; "
                "leave one of them out");
  for (const Collective probe : {Collective::floor, Collective::oneway, Collective::memcpy}) {
    const auto found = std::find(options.collectives.begin(), options.collectives.end(), probe);
    if (found == options.collectives.end()) continue;
    if (!options.all)
      refuse("--virtual-time", name_of(probe),
             "collectives and wimm: that probe is about this machine's memory; leave it out");
    options.collectives.erase(found);
  }
}

/// The cases of the verbs layer: what they do not know is refused.
void understand_verbs_cases(const CommandLine& line, const Words& words, Options& options) {
  if (options.verbs_cases.empty()) {
    if (options.against_perftest)
      refuse("--against", "perftest",
             fmt::format("mpi for collectives; perftest has {} and the like beside it",
                         name_of(VerbsCase::bandwidth)));
    return;
  }
  for (const char* const option : options_of_collectives)
    if (line.is_given(option))
      refuse(
          "COLLECTIVE", words.collectives,
          fmt::format("a collective with {}, which says nothing about the verbs layer; leave one "
                      "of them out",
                      option));
  if (options.against_mpi) refuse("--against", "mpi", "perftest for the cases of the verbs layer");
  if (!options.virtual_time) return;
  if (options.against_perftest)
    refuse("--against", "perftest",
           "real time, as perftest knows no other; leave out --virtual-time");
  for (const VerbsCase which : {VerbsCase::registration, VerbsCase::connection}) {
    const auto found = std::find(options.verbs_cases.begin(), options.verbs_cases.end(), which);
    if (found == options.verbs_cases.end()) continue;
    if (!options.all_verbs_cases)
      refuse("--virtual-time", name_of(which),
             "messages: what setting up takes is no part of the emulated network; leave it out");
    options.verbs_cases.erase(found);
  }
}

void understand_expectations(const Options& options) {
  if (options.expect.empty()) {
    if (options.tripwire)
      throw Error(ErrorCode::invalid_argument,
                  "--tripwire: expected --expect FILE, whose second column it chooses; add it");
    return;
  }
  if (options.virtual_time)
    throw Error(ErrorCode::invalid_argument,
                "--expect with --virtual-time: expected real time, in which blocks alternate; "
                "leave one of them out");
  constexpr std::size_t calls_min = blocks_min * block_calls_min;
  if (options.iterations.value_or(calls_min) < calls_min)
    refuse("--iterations", fmt::format("{}", *options.iterations),
           fmt::format("at least {} with --expect, which judges by {} alternating blocks",
                       calls_min, blocks_min));
}

void understand(const CommandLine& line, const Words& words, Options& options) {
  parse_collectives(words.collectives, options);
  parse_reduction(words, options);
  if (!words.bytes.empty()) parse_bytes(words.bytes, options);
  if (!words.ranks_per_node.empty())
    options.ranks_per_node =
        runtime::parse_ranks_per_node(words.ranks_per_node, "--ranks-per-node");
  if (!words.root.empty())
    options.root = Rank{parse_number<std::uint32_t>("--root", words.root, 0, UINT32_MAX - 1)};
  if (!words.placement.empty())
    options.placement = runtime::parse_placement(words.placement, "--placement");
  if (!words.across.empty())
    options.across = parse_name(every_way_across, "--across", words.across);
  if (!words.tree.empty()) options.tree = parse_name(every_tree, "--tree", words.tree);
  if (!words.distribution.empty()) {
    options.distribution = parse_name(every_distribution, "--distribution", words.distribution);
    if (std::none_of(options.collectives.begin(), options.collectives.end(), has_distribution))
      refuse("--distribution", words.distribution,
             "allgatherv, gatherv or scatterv among the collectives, or no such option");
  }
  if (!words.per_round.empty())
    options.per_round = runtime::parse_per_round(words.per_round, "--per-round");
  constexpr std::size_t calls_max = 1'000'000'000;
  if (!words.iterations.empty())
    options.iterations = parse_number<std::size_t>("--iterations", words.iterations, 1, calls_max);
  if (!words.warmup.empty())
    options.warmup = parse_number<std::size_t>("--warmup", words.warmup, 0, calls_max);
  if (!words.against.empty() && words.against != "mpi" && words.against != "perftest")
    refuse("--against", words.against, "mpi or perftest");
  options.against_mpi = words.against == "mpi";
  options.against_perftest = words.against == "perftest";
  if (options.against_mpi && element_bytes(options.dtype) == 2)
    refuse("--dtype", words.dtype, "a type that MPI has, too, with --against mpi");
  if (!words.notify.empty())
    options.notify = parse_name(every_notification, "--notify", words.notify);
  if (!words.check_level.empty())
    options.check_level = parse_name(every_check_level, "--check-level", words.check_level);
  if (!words.delay_us.empty())
    options.delay_us = parse_number<std::uint32_t>("--delay-us", words.delay_us, 0, 1'000'000);
  if (!words.seed.empty())
    options.seed = parse_number<std::uint64_t>("--seed", words.seed, 0, UINT64_MAX);
  options.bind = words.bind == name_of_binding(true);
  if (words.bind != name_of_binding(options.bind)) refuse("--bind", words.bind, "auto or none");
  options.format = parse_name(every_format, "--format", words.format);
  if (options.overlap && options.format != Format::table)
    refuse("--format", words.format, "table with --overlap, which is no row");
  if (!words.single_copy.empty()) parse_single_copy(words.single_copy, options);
  if (!words.tuning.empty()) {
    if (options.ways.size() > 1)
      refuse("--tuning", words.tuning, "one way of --single-copy beside it; leave one of them out");
    const std::optional<std::size_t> single_copy_bytes = options.ways.front().single_copy_bytes;
    parse_tuning(words.tuning, options);
    for (Way& way : options.ways) way.single_copy_bytes = single_copy_bytes;
  }
  if (options.in_node_memory) add_node_memory(options);
  if (!options.trace_file.empty()) add_traced(options);
  if (options.ways.size() > 1 && options.format != Format::table)
    refuse(
        "--format", words.format,
        "table with several ways of --single-copy or --tuning, or with --node-memory or --trace");
  if (!words.local.empty())
    options.local = parse_number<std::uint32_t>("--local", words.local, 1, 1024);
  if (options.local && options.against_mpi && options.verbs_cases.empty())
    refuse("--against", "mpi",
           "a run under MPI, and --local starts without it; use mpirun -n N tutti-bench ... "
           "instead of --local");
  understand_fabric(options);
  understand_verbs_cases(line, words, options);
  understand_expectations(options);
}

}  // namespace

const char* name_of(Distribution distribution) noexcept {
  return detail::name_in<Distribution::single>({"regular", "decreasing", "single"}, distribution);
}

const char* name_of(VerbsCase which) noexcept {
  return detail::name_in<VerbsCase::connection>(
      {"latency", "message_rate", "bandwidth", "fan_out", "incast", "shared_port", "registration",
       "connection"},
      which);
}

const char* name_of(Format format) noexcept {
  return detail::name_in<Format::csv>({"table", "json", "csv"}, format);
}

std::optional<Collective> collective_of(std::string_view name) {
  const auto found = std::find(std::begin(collective_names), std::end(collective_names), name);
  if (found == std::end(collective_names)) return {};
  return static_cast<Collective>(found - std::begin(collective_names));
}

const char* name_of(Collective collective) noexcept {
  return collective_names[static_cast<std::size_t>(collective)];
}

Options parse_options(std::span<const char* const> arguments) {
  Options options;
  Words words;
  CommandLine line(
      "tutti-bench",
      "Latency of tutti's collectives, beside MPI and beside what bounds them.\n"
      "Run as: mpirun -n N tutti-bench ..., or tutti-bench --local N ..., or as N processes with "
      "TUTTI_RANK.\nThen: tutti-bench summary FILE, of what --record FILE has written.  How long "
      "waking up "
      "takes: tutti-bench wake.");
  declare(line, words, options);
  if (const std::optional<std::string> help = line.parse(arguments)) {
    options.help = *help;
    return options;
  }
  understand(line, words, options);
  return options;
}

}  // namespace tutti::bench
