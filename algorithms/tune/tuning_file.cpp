#include "tune/tuning_file.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <tutti/detail/names.hpp>
#include <tutti/status.hpp>
#include <vector>

#include "tune/json_text.hpp"

namespace tutti::tune {
namespace {

// These bounds are those of tuning.schema.json.
constexpr const char* format_name = "tutti tuning 1";
constexpr std::size_t text_bytes_max = 200;  // of a name
constexpr std::size_t rules_max = 1024;
constexpr std::size_t findings_max = 8192;
constexpr std::size_t others_max = 15;
constexpr std::size_t rounds_max = 64;
constexpr std::uint64_t payload_bytes_max = std::uint64_t{1} << 50;
constexpr std::uint32_t nodes_max = 1u << 20;
constexpr std::uint32_t ranks_per_node_max = 1u << 16;
constexpr std::uint32_t rate_max = 1'000'000;  // Gb/s
constexpr std::uint32_t mtu_bytes_max = 1u << 24;
constexpr std::int64_t time_max = 1'000'000'000'000'000;  // picoseconds that were measured

// Parameters have those of most_of(), by which prices may be more than 64 bits hold: choose() then
// takes those of a machine that is as many times as fast (tune/prices.hpp).
constexpr auto all_parameters = detail::enumerators<Parameter::fan_max>;

/// One object of a file, whose members are asked for by name.
class Object {
 public:
  /// `what`: how a message calls it.
  Object(const std::string& file, std::string what, const JsonValue& value,
         const std::vector<std::string_view>& keys)
      : file_(file), what_(std::move(what)), value_(value) {
    if (value.kind != JsonValue::Kind::object)
      refuse(value.line, what_ + " is " + quotation_of(value) + "; expected an object");
    for (const JsonValue& member : value.items) {
      if (std::find(keys.begin(), keys.end(), member.key) != keys.end()) continue;
      std::string expected;
      for (const std::string_view key : keys)
        expected += (expected.empty() ? "" : ", ") + std::string(key);
      refuse(member.key_line,
             quotation_of(member.key) + " is unknown in " + what_ + "; expected " + expected);
    }
  }

  const JsonValue* find(std::string_view key) const {
    for (const JsonValue& member : value_.items)
      if (member.key == key) return &member;
    return nullptr;
  }
  const JsonValue& require(std::string_view key) const {
    const JsonValue* member = find(key);
    if (member == nullptr)
      refuse(value_.line, what_ + " lacks \"" + std::string(key) + "\"; expected it");
    return *member;
  }
  const std::string& file() const { return file_; }
  std::size_t line() const { return value_.line; }

  template <class Integer>
  Integer whole(std::string_view key, Integer least, Integer most) const {
    return whole_in(require(key), "\"" + std::string(key) + "\" of " + what_, least, most);
  }
  template <class Integer>
  Integer whole_in(const JsonValue& value, const std::string& what, Integer least,
                   Integer most) const {
    if (value.kind != JsonValue::Kind::whole || value.whole < static_cast<std::uint64_t>(least) ||
        value.whole > static_cast<std::uint64_t>(most))
      refuse(value.line, what + " is " + quotation_of(value) + "; expected a whole number from " +
                             std::to_string(least) + " to " + std::to_string(most));
    return static_cast<Integer>(value.whole);
  }

  std::string text(std::string_view key, std::size_t least_bytes) const {
    const JsonValue& value = require(key);
    const auto is_control = [](char character) {
      return static_cast<unsigned char>(character) < ' ' || character == 0x7f;
    };
    if (value.kind != JsonValue::Kind::text || value.text.size() < least_bytes ||
        value.text.size() > text_bytes_max ||
        std::any_of(value.text.begin(), value.text.end(), is_control))
      expected(value, "a text of " + std::to_string(least_bytes) + " to " +
                          std::to_string(text_bytes_max) + " bytes without control characters");
    return value.text;
  }

  bool yes_or_no(std::string_view key) const {
    const JsonValue& value = require(key);
    if (value.kind != JsonValue::Kind::boolean) expected(value, "true or false");
    return value.whole != 0;
  }

  /// The one of all enumerators up to `last` that is called so.
  template <auto last>
  decltype(last) name(const JsonValue& value) const {
    std::string names;
    for (const auto one : detail::enumerators<last>) {
      if (value.kind == JsonValue::Kind::text && value.text == name_of(one)) return one;
      names += (names.empty() ? "" : ", ") + std::string(name_of(one));
    }
    expected(value, "one of " + names);
  }

  const std::vector<JsonValue>& list(const JsonValue& value, std::size_t most) const {
    if (value.kind != JsonValue::Kind::list) expected(value, "a list");
    if (value.items.size() > most)
      refuse(value.line, "\"" + value.key + "\" of " + what_ + " has " +
                             std::to_string(value.items.size()) + " items; expected at most " +
                             std::to_string(most));
    return value.items;
  }

  [[noreturn]] void expected(const JsonValue& member, const std::string& what) const {
    refuse(member.line, "\"" + member.key + "\" of " + what_ + " is " + quotation_of(member) +
                            "; expected " + what);
  }
  [[noreturn]] void refuse(std::size_t line, const std::string& reason) const {
    refuse_line(file_, line, reason);
  }

 private:
  const std::string& file_;
  std::string what_;
  const JsonValue& value_;
};

Fingerprint fingerprint_of(const std::string& file, const JsonValue& value) {
  const Object object(
      file, "\"made_on\"", value,
      {"device", "firmware", "link", "gigabits_per_second", "mtu_bytes", "cpu", "registry"});
  Fingerprint read{
      .device = object.text("device", 0),
      .firmware = object.text("firmware", 0),
      .link = object.text("link", 0),
      .gigabits_per_second = object.whole<std::uint32_t>("gigabits_per_second", 0, rate_max),
      .mtu_bytes = object.whole<std::uint32_t>("mtu_bytes", 0, mtu_bytes_max),
      .cpu = object.text("cpu", 0),
      .registry = object.whole<std::uint32_t>("registry", 0, UINT32_MAX)};
  if (!read.link.empty() && read.link != "InfiniBand" && read.link != "Ethernet")
    object.expected(object.require("link"), "InfiniBand, Ethernet or nothing");
  return read;
}

Figure figure_of(const std::string& file, Parameter parameter, const JsonValue& value) {
  const Object object(file, "\"" + std::string(key_of(parameter)) + "\"", value,
                      {"value", "low", "high", "origin"});
  const auto most = most_of(parameter);
  const Figure read{.value = object.whole<std::int64_t>("value", 0, most),
                    .low = object.whole<std::int64_t>("low", 0, most),
                    .high = object.whole<std::int64_t>("high", 0, most),
                    .origin = object.name<Origin::given>(object.require("origin"))};
  if (read.low > read.value)
    object.expected(object.require("low"), "at most the value, " + std::to_string(read.value));
  if (read.high < read.value)
    object.expected(object.require("high"), "at least the value, " + std::to_string(read.value));
  return read;
}

Machine machine_of(const std::string& file, const JsonValue& value) {
  std::vector<std::string_view> keys{"name"};
  for (const Parameter parameter : all_parameters) keys.emplace_back(key_of(parameter));
  const Object object(file, "\"machine\"", value, keys);
  Machine read{.name = object.text("name", 1)};
  for (const Parameter parameter : all_parameters) {
    const char* const key = key_of(parameter);
    // Files of earlier versions do not have it: 0, as in presets.
    if (parameter == Parameter::rank_gap && object.find(key) == nullptr) continue;
    read[parameter] = figure_of(file, parameter, object.require(key));
  }
  return read;
}

ProbeTime probe_time_of(const std::string& file, const JsonValue& value) {
  const Object object(file, "one of \"probes\"", value,
                      {"probe", "bytes", "messages", "ranks", "measured_ps", "predicted_ps"});
  return {.probe = object.name<Probe::inside_read>(object.require("probe")),
          .bytes = object.whole<std::uint64_t>("bytes", 0, probe_bytes_max),
          .messages = object.whole<std::uint32_t>("messages", 1, probe_messages_max),
          .ranks = object.whole<std::uint32_t>("ranks", 1, probe_messages_max),
          .measured = object.whole<plan::Picoseconds>("measured_ps", 0, time_max),
          .predicted = object.whole<plan::Picoseconds>("predicted_ps", 0, time_max)};
}

WritePlacement placement_of(const std::string& file, const JsonValue& value) {
  const Object object(file, "\"placement\"", value,
                      {"lines", "torn_lines", "words", "early_words"});
  const auto count = [&](std::string_view key) {
    return object.whole<std::uint64_t>(key, 0, placed_writes_max);
  };
  const WritePlacement read{.lines = count("lines"),
                            .torn_lines = count("torn_lines"),
                            .words = count("words"),
                            .early_words = count("early_words")};
  if (read.torn_lines > read.lines)
    object.expected(object.require("torn_lines"),
                    "at most the lines, " + std::to_string(read.lines));
  if (read.early_words > read.words)
    object.expected(object.require("early_words"),
                    "at most the words, " + std::to_string(read.words));
  return read;
}

template <class Integer>
Range<Integer> range_of(const Object& rule, std::string_view key) {
  Range<Integer> range;
  const JsonValue* value = rule.find(key);
  if (value == nullptr) return range;
  const Object object(rule.file(), "\"" + std::string(key) + "\" of a rule", *value,
                      {"from", "to"});
  if (object.find("from")) range.from = object.whole<Integer>("from", 0, range.to);
  if (object.find("to")) range.to = object.whole<Integer>("to", 0, range.to);
  if (range.from > range.to)
    rule.refuse(value->line, "\"" + std::string(key) + "\" of a rule is empty: from " +
                                 std::to_string(range.from) + " to " + std::to_string(range.to) +
                                 "; expected from at most to");
  return range;
}

Rule rule_of(const std::string& file, const JsonValue& value) {
  const Object object(file, "a rule", value,
                      {"collective", "bytes", "ranks", "nodes", "ranks_per_node", "agreement",
                       "algorithm", "across", "tree", "per_round"});
  Rule rule;
  rule.collective = object.name<Collective::exscan>(object.require("collective"));
  rule.bytes = range_of<std::uint64_t>(object, "bytes");
  rule.ranks = range_of<std::uint32_t>(object, "ranks");
  rule.nodes = range_of<std::uint32_t>(object, "nodes");
  rule.ranks_per_node = range_of<std::uint32_t>(object, "ranks_per_node");
  const JsonValue* const agreement = object.find("agreement");
  const JsonValue* const algorithm = object.find("algorithm");
  const JsonValue* const across = object.find("across");
  const JsonValue* const tree = object.find("tree");
  const JsonValue* const per_round = object.find("per_round");
  if (algorithm == nullptr && across == nullptr && tree == nullptr && per_round == nullptr)
    object.refuse(object.line(),
                  "a rule asks for nothing; expected algorithm, across, tree or per_round");
  const bool has_algorithm =
      rule.collective == Collective::allreduce || rule.collective == Collective::barrier;
  const bool has_tree =
      rule.collective == Collective::broadcast || rule.collective == Collective::reduce;
  const auto require = [&](const JsonValue& given, bool has, const char* which) {
    if (!has)
      object.expected(given, std::string("nothing, as ") + name_of(rule.collective) +
                                 " has none; only " + which + " have");
  };
  if (agreement) rule.agreement = object.name<Agreement::relaxed>(*agreement);
  if (algorithm) {
    require(*algorithm, has_algorithm, "barrier and allreduce");
    rule.algorithm = object.name<Algorithm::canonical_halving>(*algorithm);
    if (rule.collective == Collective::barrier && rule.algorithm != Algorithm::automatic &&
        rule.algorithm != Algorithm::dissemination)
      object.expected(*algorithm, "automatic or dissemination, for a barrier");
  }
  if (across) {
    require(*across, has_algorithm, "barrier and allreduce");
    rule.across = object.name<Across::lanes>(*across);
  }
  if (tree) {
    require(*tree, has_tree, "broadcast and reduce");
    rule.tree = object.name<Tree::fibonacci>(*tree);
  }
  if (per_round) {
    for (const JsonValue& one : object.list(*per_round, rounds_max))
      rule.per_round.push_back(object.whole_in<std::uint32_t>(
          one, "an entry of \"per_round\"", 1, static_cast<std::uint32_t>(plan::slots_max)));
    if (rule.per_round.empty()) object.expected(*per_round, "messages of one round at least");
  }
  return rule;
}

Timing timing_of(const std::string& file, const char* what, const JsonValue& value) {
  const Object object(file, what, value, {"choice", "measured_ps", "predicted_ps"});
  return {.choice = object.text("choice", 1),
          .measured = object.whole<plan::Picoseconds>("measured_ps", 1, time_max),
          .predicted = object.whole<plan::Picoseconds>("predicted_ps", 0, time_max)};
}

Finding finding_of(const std::string& file, const JsonValue& value) {
  const Object object(file, "a finding", value,
                      {"collective", "bytes", "nodes", "ranks_per_node", "agreement", "operators",
                       "winner", "others", "noisy"});
  Finding finding{
      .collective = object.name<Collective::exscan>(object.require("collective")),
      .bytes = object.whole<std::uint64_t>("bytes", 0, payload_bytes_max),
      .nodes = object.whole<std::uint32_t>("nodes", 1, nodes_max),
      .ranks_per_node = object.whole<std::uint32_t>("ranks_per_node", 1, ranks_per_node_max),
      .agreement = object.name<Agreement::relaxed>(object.require("agreement")),
      .operators = object.name<OperatorClass::ordered>(object.require("operators")),
      .winner = timing_of(file, "\"winner\"", object.require("winner")),
      .is_noisy = object.yes_or_no("noisy")};
  if (combines(finding.collective) != (finding.operators != OperatorClass::none))
    object.expected(object.require("operators"),
                    std::string(combines(finding.collective) ? "an operator" : "none") + ", for " +
                        name_of(finding.collective));
  if (finding.collective == Collective::barrier && finding.bytes != 0)
    object.expected(object.require("bytes"), "0, for a barrier");
  const auto is_there = [&](const std::string& choice) {
    return std::any_of(finding.others.begin(), finding.others.end(),
                       [&](const Timing& other) { return other.choice == choice; });
  };
  for (const JsonValue& one : object.list(object.require("others"), others_max)) {
    Timing other = timing_of(file, "one of \"others\"", one);
    if (other.choice == finding.winner.choice)
      object.refuse(one.line, "\"choice\" of one of \"others\" is " + quotation_of(other.choice) +
                                  ", which is the winner; expected those it was faster than");
    if (is_there(other.choice))
      object.refuse(one.line, "\"choice\" of one of \"others\" is " + quotation_of(other.choice) +
                                  " a second time; expected it once");
    finding.others.push_back(std::move(other));
  }
  return finding;
}

/// Throws if two findings about the same call have different winners.
void require_consistent(const std::string& file, const std::vector<Finding>& findings,
                        const std::vector<std::size_t>& lines) {
  std::map<
      std::tuple<Collective, std::uint64_t, std::uint32_t, std::uint32_t, Agreement, OperatorClass>,
      std::size_t>
      first_of;
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const Finding& finding = findings[i];
    const auto [first, is_new] =
        first_of.try_emplace({finding.collective, finding.bytes, finding.nodes,
                              finding.ranks_per_node, finding.agreement, finding.operators},
                             i);
    if (is_new || findings[first->second].winner.choice == finding.winner.choice) continue;
    refuse_line(file, lines[i],
                "the winner is " + quotation_of(finding.winner.choice) + ", but line " +
                    std::to_string(lines[first->second]) + " has " +
                    quotation_of(findings[first->second].winner.choice) +
                    " for the same call; expected one of them");
  }
}

// Writing.

std::string member(const char* key, const std::string& value) {
  return json_string(key) + ": " + value;
}
std::string text_member(const char* key, std::string_view text) {
  return member(key, json_string(text));
}
template <class Integer>
std::string number_member(const char* key, Integer value) {
  return member(key, std::to_string(value));
}
std::string joined(const std::vector<std::string>& parts, const char* between) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += between;
    text += part;
  }
  return text;
}
std::string object_of(const std::vector<std::string>& members) {
  return "{" + joined(members, ", ") + "}";
}

std::string line_of(const Fingerprint& made_on) {
  return object_of({text_member("device", made_on.device),
                    text_member("firmware", made_on.firmware), text_member("link", made_on.link),
                    number_member("gigabits_per_second", made_on.gigabits_per_second),
                    number_member("mtu_bytes", made_on.mtu_bytes), text_member("cpu", made_on.cpu),
                    number_member("registry", made_on.registry)});
}

std::string line_of(const ProbeTime& one) {
  return object_of({text_member("probe", name_of(one.probe)), number_member("bytes", one.bytes),
                    number_member("messages", one.messages), number_member("ranks", one.ranks),
                    number_member("measured_ps", one.measured),
                    number_member("predicted_ps", one.predicted)});
}

std::string line_of(const WritePlacement& placement) {
  return object_of({number_member("lines", placement.lines),
                    number_member("torn_lines", placement.torn_lines),
                    number_member("words", placement.words),
                    number_member("early_words", placement.early_words)});
}

std::string line_of(const Figure& figure) {
  return object_of({number_member("value", figure.value), number_member("low", figure.low),
                    number_member("high", figure.high),
                    text_member("origin", name_of(figure.origin))});
}

template <class Integer>
void add_range(std::vector<std::string>& members, const char* key, const Range<Integer>& range) {
  if (range == Range<Integer>{}) return;
  std::vector<std::string> ends;
  if (range.from != Range<Integer>{}.from) ends.push_back(number_member("from", range.from));
  if (range.to != Range<Integer>{}.to) ends.push_back(number_member("to", range.to));
  members.push_back(member(key, object_of(ends)));
}

std::string line_of(const Rule& rule) {
  std::vector<std::string> members{text_member("collective", name_of(rule.collective))};
  add_range(members, "bytes", rule.bytes);
  add_range(members, "ranks", rule.ranks);
  add_range(members, "nodes", rule.nodes);
  add_range(members, "ranks_per_node", rule.ranks_per_node);
  if (rule.agreement) members.push_back(text_member("agreement", name_of(*rule.agreement)));
  const std::size_t before = members.size();
  if (rule.algorithm != Algorithm::automatic)
    members.push_back(text_member("algorithm", name_of(rule.algorithm)));
  if (rule.across != Across::automatic)
    members.push_back(text_member("across", name_of(rule.across)));
  if (rule.tree != Tree::automatic) members.push_back(text_member("tree", name_of(rule.tree)));
  if (!rule.per_round.empty()) {
    std::vector<std::string> entries;
    for (const std::uint32_t entry : rule.per_round) entries.push_back(std::to_string(entry));
    members.push_back(member("per_round", "[" + joined(entries, ", ") + "]"));
  }
  if (members.size() == before) {  // it keeps the rules below from its calls
    const bool has_tree =
        rule.collective == Collective::broadcast || rule.collective == Collective::reduce;
    members.push_back(text_member(has_tree ? "tree" : "algorithm", "automatic"));
  }
  return object_of(members);
}

std::string line_of(const Timing& timing) {
  return object_of({text_member("choice", timing.choice),
                    number_member("measured_ps", timing.measured),
                    number_member("predicted_ps", timing.predicted)});
}

template <class Fact>
std::string lines_of(const char* key, const std::vector<Fact>& facts) {
  std::vector<std::string> lines;
  lines.reserve(facts.size());
  for (const Fact& fact : facts) lines.push_back("    " + line_of(fact));
  return "  " + member(key, "[\n") + joined(lines, ",\n") + "\n  ]";
}

}  // namespace

Tuning parse_tuning(std::string_view text, const std::string& name) {
  const JsonValue root = parse_json(text, name);
  const Object object(name, "the file", root,
                      {"format", "made_on", "machine", "probes", "placement", "rules", "findings"});
  if (const JsonValue& format = object.require("format");
      format.kind != JsonValue::Kind::text || format.text != format_name)
    object.expected(format, json_string(format_name));
  Tuning tuning;
  if (const JsonValue* made_on = object.find("made_on"))
    tuning.made_on = fingerprint_of(name, *made_on);
  if (const JsonValue* machine = object.find("machine"))
    tuning.machine = machine_of(name, *machine);
  if (const JsonValue* probes = object.find("probes"))
    for (const JsonValue& one : object.list(*probes, probe_times_max))
      tuning.probe_times.push_back(probe_time_of(name, one));
  if (const JsonValue* placement = object.find("placement"))
    tuning.placement = placement_of(name, *placement);
  if (const JsonValue* rules = object.find("rules"))
    for (const JsonValue& one : object.list(*rules, rules_max))
      tuning.rules.push_back(rule_of(name, one));
  std::vector<std::size_t> lines;
  if (const JsonValue* findings = object.find("findings"))
    for (const JsonValue& one : object.list(*findings, findings_max)) {
      tuning.findings.push_back(finding_of(name, one));
      lines.push_back(one.line);
    }
  require_consistent(name, tuning.findings, lines);
  return tuning;
}

std::string text_of(const Tuning& tuning) {
  std::vector<std::string> parts{"  " + text_member("format", format_name)};
  if (tuning.made_on != Fingerprint{})
    parts.push_back("  " + member("made_on", line_of(tuning.made_on)));
  if (is_described(tuning.machine)) {
    std::vector<std::string> lines{"    " + text_member("name", tuning.machine.name)};
    for (const Parameter parameter : all_parameters)
      lines.push_back("    " + member(key_of(parameter), line_of(tuning.machine[parameter])));
    parts.push_back("  " + member("machine", "{\n") + joined(lines, ",\n") + "\n  }");
  }
  if (!tuning.probe_times.empty()) parts.push_back(lines_of("probes", tuning.probe_times));
  if (tuning.placement != WritePlacement{})
    parts.push_back("  " + member("placement", line_of(tuning.placement)));
  if (!tuning.rules.empty()) parts.push_back(lines_of("rules", tuning.rules));
  if (!tuning.findings.empty()) parts.push_back(lines_of("findings", tuning.findings));
  std::string text = "{\n" + joined(parts, ",\n") + "\n}\n";
  (void)parse_tuning(text, "the tuning to be written");  // nobody shall find a file that is refused
  return text;
}

std::string line_of(const Finding& finding) {
  std::vector<std::string> others;
  for (const Timing& other : finding.others) others.push_back(line_of(other));
  return object_of({text_member("collective", name_of(finding.collective)),
                    number_member("bytes", finding.bytes), number_member("nodes", finding.nodes),
                    number_member("ranks_per_node", finding.ranks_per_node),
                    text_member("agreement", name_of(finding.agreement)),
                    text_member("operators", name_of(finding.operators)),
                    member("winner", line_of(finding.winner)),
                    member("others", "[" + joined(others, ", ") + "]"),
                    member("noisy", finding.is_noisy ? "true" : "false")});
}

Finding parse_finding(std::string_view line, const std::string& name, std::size_t line_number) {
  return finding_of(name, parse_json(line, name, line_number));
}

}  // namespace tutti::tune
