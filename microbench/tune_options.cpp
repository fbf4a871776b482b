#include "microbench/tune_options.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "microbench/command_line.hpp"
#include "microbench/tune_racers.hpp"
#include "microbench/words.hpp"
#include "runtime/settings.hpp"
#include "runtime/tuning_table.hpp"
#include "verbs/soft/fabric_model.hpp"

namespace tutti::bench {
namespace {

/// Collectives with blocks of different sizes choose as these do.
constexpr Collective every_tuned[] = {
    Collective::allreduce, Collective::barrier,  Collective::broadcast,      Collective::reduce,
    Collective::allgather, Collective::alltoall, Collective::reduce_scatter, Collective::gather,
    Collective::scatter,   Collective::scan,     Collective::exscan};

constexpr VerifiedPart every_part[] = {VerifiedPart::model,  VerifiedPart::race,
                                       VerifiedPart::nearby, VerifiedPart::fit,
                                       VerifiedPart::noise,  VerifiedPart::time};
constexpr const char* default_verified = "model,race,nearby";

constexpr double budget_seconds_min = 1, budget_seconds_max = 7 * 24 * 3600;

/// The first of the files that programs look for which is there; else the first one.
std::string tuning_file_in_force() {
  const std::vector<std::string> paths = runtime::tuning_paths();
  for (const std::string& path : paths)
    if (::access(path.c_str(), F_OK) == 0) return path;
  return paths.front();
}

/// By these, calls take other times or other schedules, which no tuning file says.
constexpr const char* special[] = {"TUTTI_PER_ROUND",
                                   "TUTTI_CHUNK_BYTES",
                                   "TUTTI_NOTIFY",
                                   "TUTTI_WAIT",
                                   "TUTTI_CHECK",
                                   "TUTTI_SINGLE_COPY_BYTES",
                                   "TUTTI_REGISTER_BUFFERS",
                                   "TUTTI_DOMAINS_ABOVE",
                                   "TUTTI_RANKS_PER_DOMAIN",
                                   "TUTTI_SHARED_NOTIFICATIONS"};

void refuse_special_environment() {
  for (const char* const name : special)
    if (std::getenv(name) != nullptr)
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("{}: what is found would hold for programs with the same value alone, "
                      "and a tuning file does not say so; unset it",
                      name));
}

/// The options as text, before they are parsed.
struct Words {
  std::optional<std::string> local, ranks_per_node, placement, bind;
  std::optional<std::string> collectives, bytes, budget, seed, out, fabric;
  std::optional<std::string> show, report, file;
  std::vector<std::string> diff;
  std::optional<std::string> explain, ranks, op, dtype, agreement;
  std::optional<std::string> verify, percent_off;
  bool check = false;
};

void declare(CommandLine& line, Words& words, TuneOptions& options) {
  line.add("--local", words.local,
           "fork that many ranks on this machine; default: the ranks are those of mpirun or "
           "TUTTI_RANK");
  line.add(
      "--collectives", words.collectives,
      "which are tuned, default all: " + names_of(every_tuned) +
          "; between hosts, whose clocks differ, those that are timed from one rank to another "
          "are left out, and named: rooted ones and scans");
  line.add("--bytes", words.bytes,
           fmt::format("contribution of each rank (of allgather, alltoall, gather and scatter: of "
                       "each block); default {}",
                       fmt::join(options.bytes, ",")));
  line.add("--budget", words.budget,
           fmt::format("seconds that it may take; default {:g}, of --verify as many as it needs",
                       options.budget.count()));
  line.add("--out", words.out,
           "file to write to, and whose findings are kept until better ones are there; default: "
           "$XDG_CONFIG_HOME/tutti/tuning.json, where every program finds it");
  line.add_flag("--fresh", options.fresh,
                "forget the findings of that file, and of a run that was interrupted; rules that "
                "people wrote are kept");
  line.add("--seed", words.seed,
           fmt::format("seed of the order in which candidates run; default {}", options.seed));
  line.add_flag("--network-only", options.network_only,
                "measure the parameters of the network, and race no schedules");
  line.add_flag("--virtual-time", options.virtual_time,
                "in simulated time on the network of --fabric; needs --local and --fabric");
  line.add("--fabric", words.fabric,
           "network that the software device emulates: " + verbs::soft::fabric_preset_names() +
               ", or a JSON file; with --explain, a preset to choose for");
  line.add("--ranks-per-node", words.ranks_per_node,
           "imposed node shape, e.g. 2 or 3,1,2; default: the ranks of a host are a node");
  line.add("--placement", words.placement,
           "how ranks are placed on imposed nodes: block, cyclic or random; default block");
  line.add("--bind", words.bind, "auto or none: bind ranks to distinct cores; default auto");
  line.add("--show", words.show, "print what a tuning file says, and end");
  line.add("--explain", words.explain,
           "print what is chosen for this collective, why, and what would flip the choice; with "
           "--bytes, --ranks, --ranks-per-node, --op, --dtype, --agreement, and --file or "
           "--fabric");
  line.add("--ranks", words.ranks, "with --explain: the number of ranks");
  line.add("--op", words.op, "with --explain: the operator, as of tutti-info plan; default sum");
  line.add("--dtype", words.dtype, "with --explain: the element type; default double");
  line.add("--agreement", words.agreement,
           "with --explain: identical, reproducible or relaxed; default identical");
  line.add("--file", words.file,
           "with --explain, --check and --report: the tuning file; default: the one that programs "
           "find: TUTTI_TUNING_FILE, else $XDG_CONFIG_HOME/tutti/tuning.json or "
           "/etc/tutti/tuning.json");
  line.add("--verify", default_verified, words.verify,
           "without any machine, print how far tuning keeps what it promises, and what misses a "
           "bound; exit status 3 if something does.  How far choices are from the best ones, over "
           "a grid of networks, shapes and sizes, which takes an hour of processor time unless "
           "there is a --budget: "
           "model, by the model alone; race, after a race; nearby, by findings of other bytes "
           "and nodes.  These take seconds to a minute: fit, parameters and their intervals from "
           "samples with noise; "
           "noise, races with noise; time, what choosing takes");
  line.add("--percent-off", words.percent_off,
           fmt::format("with --verify of the grid: by how many percent each parameter that choices "
                       "are made from is wrong, 0 to 50; 0 shows what the model itself misses; "
                       "default {}",
                       options.percent_off));
  line.add_flag("--check", words.check,
                "in two seconds, measure the three figures again that say most about the fabric; "
                "exit status 0: it is what the file says, 1: it has changed by more than noise, 2: "
                "bad input, 3: nothing could be compared, or measuring has failed");
  line.add("--diff", 2, words.diff, "print what differs between two tuning files");
  line.add(
      "--report", words.report,
      "write a page with pictures of the tuning file to FILE.html: latencies, what is chosen, and "
      "how far off the model was in each race; a tuning file is not replaced");
}

void parse_collectives(const std::string& text, TuneOptions& options) {
  if (text == "all")
    options.collectives.assign(std::begin(every_tuned), std::end(every_tuned));
  else
    options.collectives = parse_list("--collectives", text, "name", [](const std::string& word) {
      return parse_name(every_tuned, "--collectives", word);
    });
}

void parse_bytes(const std::string& text, TuneOptions& options) {
  constexpr std::size_t bytes_max = std::size_t{1} << 30;
  options.bytes = parse_list("--bytes", text, "size", [](const std::string& word) -> std::size_t {
    const std::uint64_t bytes = runtime::parse_bytes(word, "--bytes");
    require_whole(word, bytes, ElementType::float64, 8, "give another size");
    if (bytes == 0 || bytes > bytes_max) refuse("--bytes", word, "sizes from 8 to 1G");
    return bytes;
  });
}

std::chrono::duration<double> parse_budget(const std::string& text) {
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  const bool is_number = !text.empty() && *end == '\0' && std::isfinite(seconds);
  if (!is_number || seconds < budget_seconds_min || seconds > budget_seconds_max)
    refuse("--budget", text,
           fmt::format("seconds from {:g} to {:g}, for example 60", budget_seconds_min,
                       budget_seconds_max));
  return std::chrono::duration<double>(seconds);
}

TuneMode mode_of(const Words& words) {
  TuneMode mode = TuneMode::tune;
  const char* first = nullptr;
  const auto take = [&](bool given, TuneMode asked, const char* option) {
    if (!given) return;
    if (first != nullptr)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} with {}: expected one of them; leave one out", first, option));
    first = option;
    mode = asked;
  };
  take(words.show.has_value(), TuneMode::show, "--show");
  take(words.explain.has_value(), TuneMode::explain, "--explain");
  take(words.verify.has_value(), TuneMode::verify, "--verify");
  take(words.check, TuneMode::check, "--check");
  take(!words.diff.empty(), TuneMode::diff, "--diff");
  take(words.report.has_value(), TuneMode::report, "--report");
  return mode;
}

/// Refuses options that do nothing in this mode.
void refuse_what_does_nothing(const Words& words, const TuneOptions& options) {
  const TuneMode mode = options.mode;
  const bool tunes = mode == TuneMode::tune, runs = tunes || mode == TuneMode::check;
  const bool explains = mode == TuneMode::explain;
  const auto refuse_unless = [](bool known, const char* option, bool given, const char* with) {
    if (given && !known)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: expected only {}; leave it out", option, with));
  };
  refuse_unless(runs, "--local", words.local.has_value(), "where ranks run");
  refuse_unless(runs, "--bind", words.bind.has_value(), "where ranks run");
  refuse_unless(runs, "--virtual-time", options.virtual_time, "where ranks run");
  refuse_unless(runs || explains, "--fabric", words.fabric.has_value(),
                "where ranks run, or with --explain");
  refuse_unless(runs || explains, "--ranks-per-node", words.ranks_per_node.has_value(),
                "where ranks run, or with --explain");
  refuse_unless(runs || explains, "--placement", words.placement.has_value(),
                "where ranks run, or with --explain");
  refuse_unless(tunes, "--collectives", words.collectives.has_value(), "in a run that tunes");
  refuse_unless(tunes || mode == TuneMode::verify, "--budget", words.budget.has_value(),
                "in a run that tunes, or with --verify");
  refuse_unless(tunes, "--out", words.out.has_value(), "in a run that tunes; --file is read");
  refuse_unless(tunes, "--fresh", options.fresh, "in a run that tunes");
  refuse_unless(tunes, "--network-only", options.network_only, "in a run that tunes");
  refuse_unless(runs || mode == TuneMode::verify, "--seed", words.seed.has_value(),
                "in a run that tunes, or with --check or --verify");
  refuse_unless(mode == TuneMode::verify, "--percent-off", words.percent_off.has_value(),
                "with --verify");
  refuse_unless(tunes || explains, "--bytes", words.bytes.has_value(),
                "in a run that tunes, or with --explain");
  refuse_unless(explains, "--ranks", words.ranks.has_value(), "with --explain");
  refuse_unless(explains, "--op", words.op.has_value(), "with --explain");
  refuse_unless(explains, "--dtype", words.dtype.has_value(), "with --explain");
  refuse_unless(explains, "--agreement", words.agreement.has_value(), "with --explain");
  refuse_unless(explains || mode == TuneMode::check || mode == TuneMode::report, "--file",
                words.file.has_value(), "with --explain, --check or --report");
}

void understand_verified(const Words& words, TuneOptions& options) {
  for (const std::string& word : split(*words.verify)) {
    const VerifiedPart part = parse_name(every_part, "--verify", word);
    if (std::find(options.verified.begin(), options.verified.end(), part) != options.verified.end())
      refuse("--verify", *words.verify, fmt::format("each word once; {} is there twice", word));
    options.verified.push_back(part);
  }
  const bool has_grid =
      std::any_of(options.verified.begin(), options.verified.end(), is_about_grid);
  if (words.budget && !has_grid)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--budget with --verify {}: expected only with {}, of which it leaves "
                            "cells out; leave it out",
                            *words.verify, default_verified));
  if (words.percent_off && !has_grid)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--percent-off with --verify {}: expected only with {}, whose choices "
                            "are made from such parameters; leave it out",
                            *words.verify, default_verified));
  if (words.percent_off)
    options.percent_off = parse_number<std::uint32_t>("--percent-off", *words.percent_off, 0, 50);
}

void understand_fabric(const Words& words, TuneOptions& options) {
  if (words.fabric) options.fabric = *words.fabric;
  if (options.mode == TuneMode::explain) {
    if (words.fabric && words.file)
      throw Error(ErrorCode::invalid_argument,
                  "--fabric with --file: expected one of them; leave one out");
    return;
  }
  if (options.virtual_time && !options.local)
    throw Error(ErrorCode::invalid_argument,
                "--virtual-time: expected --local N, whose ranks share a clock; add it");
  if (const char* given = std::getenv("TUTTI_SOFT_FABRIC"); given && options.fabric.empty())
    options.fabric = given;
  if (options.virtual_time && options.fabric.empty())
    throw Error(ErrorCode::invalid_argument,
                "--virtual-time: expected --fabric, the network to simulate: " +
                    verbs::soft::fabric_preset_names() + ", or a JSON file; add it");
  if (!options.fabric.empty()) (void)verbs::soft::read_fabric_model(options.fabric);
}

void understand_explained(const Words& words, TuneOptions& options) {
  if (!words.ranks)
    throw Error(ErrorCode::invalid_argument,
                "--explain: expected --ranks P, the number of ranks; add it");
  PlanWords asked;
  asked.collective = *words.explain;
  asked.collective_option = "--explain";
  asked.ranks = words.ranks;
  asked.ranks_per_node = words.ranks_per_node;
  asked.placement = words.placement;
  asked.op = words.op;
  asked.agreement = words.agreement;
  asked.bytes = words.bytes;
  asked.dtype = words.dtype.value_or("double");
  options.explained = understand(asked);
}

void understand_file(const Words& words, TuneOptions& options) {
  if (words.out)
    options.file = *words.out;
  else if (words.show)
    options.file = *words.show;
  else if (words.file)
    options.file = *words.file;
  else if (!words.diff.empty()) {
    options.file = words.diff[0];
    options.other_file = words.diff[1];
  } else {
    const char* const named = std::getenv("TUTTI_TUNING_FILE");
    const bool is_named = options.mode != TuneMode::tune && named != nullptr && named[0] != '\0';
    options.file = is_named                         ? named
                   : options.mode == TuneMode::tune ? default_tuning_file()
                                                    : tuning_file_in_force();
    options.is_default_file = !is_named;
    if (options.file.empty() && options.mode == TuneMode::tune)
      throw Error(ErrorCode::invalid_argument,
                  "--out: expected a file to write to, as neither XDG_CONFIG_HOME nor HOME says "
                  "where it is by default; add it");
  }
  if (words.report) options.other_file = *words.report;
  const auto refuse_empty = [&](const char* option, bool given) {
    if (given && (options.file.empty() || (words.report && options.other_file.empty())))
      refuse(option, "", "the name of a file");
  };
  refuse_empty("--out", words.out.has_value());
  refuse_empty("--show", words.show.has_value());
  refuse_empty("--file", words.file.has_value());
  refuse_empty("--report", words.report.has_value());
}

void understand(const Words& words, TuneOptions& options) {
  options.mode = mode_of(words);
  refuse_what_does_nothing(words, options);
  if (words.local) options.local = parse_number<std::uint32_t>("--local", *words.local, 1, 1024);
  if (options.mode == TuneMode::explain) {
    understand_explained(words, options);
  } else {
    if (words.ranks_per_node)
      options.ranks_per_node =
          runtime::parse_ranks_per_node(*words.ranks_per_node, "--ranks-per-node");
    if (words.placement)
      options.placement = runtime::parse_placement(*words.placement, "--placement");
    if (words.bytes) parse_bytes(*words.bytes, options);
  }
  if (words.bind) {
    options.bind = *words.bind == "auto";
    if (!options.bind && *words.bind != "none") refuse("--bind", *words.bind, "auto or none");
  }
  parse_collectives(words.collectives.value_or("all"), options);
  if (words.budget) options.budget = options.verify_budget = parse_budget(*words.budget);
  if (words.verify) understand_verified(words, options);
  if (words.seed) options.seed = parse_number<std::uint64_t>("--seed", *words.seed, 0, UINT64_MAX);
  if (options.mode == TuneMode::tune) refuse_special_environment();
  understand_fabric(words, options);
  understand_file(words, options);
}

}  // namespace

const char* name_of(VerifiedPart part) noexcept {
  constexpr const char* names[] = {"model", "race", "nearby", "fit", "noise", "time"};
  return names[static_cast<std::size_t>(part)];
}

std::span<const Collective> tuned_collectives() {
  return every_tuned;
}

std::string default_tuning_file() {
  const std::vector<std::string> paths = runtime::tuning_paths();
  return paths.size() > 1 ? paths.front() : "";  // the last one is that of all users
}

TuneOptions parse_tune_options(std::span<const char* const> arguments) {
  TuneOptions options;
  options.bytes.assign(tuned_bytes_by_default.begin(), tuned_bytes_by_default.end());
  Words words;
  CommandLine line(
      "tutti-tune",
      "Measures the network and the collectives of these ranks, and writes a tuning file, by "
      "which\n"
      "every later run chooses.  Run as: mpirun -n N tutti-tune ..., or tutti-tune --local N ...,\n"
      "or as N processes with TUTTI_RANK.  A run that was interrupted goes on where it was.");
  declare(line, words, options);
  if (const std::optional<std::string> help = line.parse(arguments)) {
    options.help = *help;
    return options;
  }
  understand(words, options);
  return options;
}

}  // namespace tutti::bench
