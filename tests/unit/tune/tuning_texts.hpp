// Texts of tuning files: one that is read, what may be wrong with it, and random ones that are
// valid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <tutti/detail/enumerators.hpp>
#include <utility>
#include <vector>

#include "tune/tuning_file.hpp"

namespace tutti::test {

inline const std::string tuning_example = R"({
  "format": "tutti tuning 1",
  "made_on": {"device": "mlx5_0", "firmware": "16.35.2000", "link": "InfiniBand",
              "gigabits_per_second": 100, "mtu_bytes": 4096, "cpu": "EPYC \"7763\" \\ \u00b5",
              "registry": 1},
  "machine": {
    "name": "measured",
    "latency_ps": {"value": 850000, "low": 840000, "high": 861000, "origin": "measured"},
    "receive_overhead_ps": {"value": 50000, "low": 48000, "high": 52000, "origin": "measured"},
    "gap_ps": {"value": 100000, "low": 99000, "high": 104000, "origin": "measured"}, "rank_gap_ps": {"value": 60000, "low": 59000, "high": 63000, "origin": "measured"},
    "per_byte_fs": {"value": 147059, "low": 147000, "high": 147100, "origin": "measured"},
    "combine_ps": {"value": 10000, "low": 10000, "high": 10000, "origin": "preset"},
    "combine_per_byte_fs": {"value": 125000, "low": 125000, "high": 125000, "origin": "preset"},
    "inside_latency_ps": {"value": 100000, "low": 100000, "high": 100000, "origin": "given"},
    "inside_send_overhead_ps": {"value": 20000, "low": 20000, "high": 20000, "origin": "given"},
    "inside_receive_overhead_ps": {"value": 20000, "low": 20000, "high": 20000, "origin": "given"},
    "inside_per_byte_fs": {"value": 100000, "low": 100000, "high": 100000, "origin": "given"},
    "inside_read_overhead_ps": {"value": 500000, "low": 500000, "high": 500000, "origin": "given"},
    "inside_read_per_byte_fs": {"value": 100000, "low": 100000, "high": 100000, "origin": "given"},
    "fan_max": {"value": 0, "low": 0, "high": 0, "origin": "preset"}
  }, "probes": [{"probe": "one_way", "bytes": 16, "messages": 1, "ranks": 1, "measured_ps": 901200, "predicted_ps": 902353}], "placement": {"lines": 1200000, "torn_lines": 0, "words": 900000, "early_words": 2},
  "rules": [
    {"collective": "allreduce", "bytes": {"to": 255}, "nodes": {"from": 96, "to": 96},
     "agreement": "relaxed", "algorithm": "two_partial_dissemination", "per_round": [4, 4, 3]},
    {"collective": "broadcast", "ranks": {"from": 2}, "tree": "binomial"},
    {"collective": "barrier", "across": "leader"}
  ],
  "findings": [
    {"collective": "allreduce", "bytes": 8, "nodes": 96, "ranks_per_node": 1,
     "agreement": "identical", "operators": "rounding",
     "winner": {"choice": "recursive_multiplying with 7,3,2 a round", "measured_ps": 6000000,
                "predicted_ps": 5800000},
     "others": [
       {"choice": "canonical_dissemination with 5,3,3 a round", "measured_ps": 6500000,
        "predicted_ps": 5900000},
       {"choice": "recursive_multiplying with 5,3,3 a round", "measured_ps": 6600000,
        "predicted_ps": 6000000}],
     "noisy": false},
    {"collective": "barrier", "bytes": 0, "nodes": 96, "ranks_per_node": 1,
     "agreement": "identical", "operators": "none",
     "winner": {"choice": "dissemination with 4,4,3 a round", "measured_ps": 5100000,
                "predicted_ps": 5000000},
     "others": [], "noisy": true}
  ]
}
)";

/// The example with `from` replaced is refused at that line, with these words.
struct RefusedEdit {
  const char* from;
  const char* to;
  std::size_t line;
  const char* says;
  bool schema_sees = true;  // else it is about what no schema can say, or about the text
};
inline const std::vector<RefusedEdit> refused_edits = {
    // Keys.
    {"\"registry\": 1", "\"registry\": 1, \"host\": \"a\"", 5,
     "\"host\" is unknown in \"made_on\"; expected device, firmware, link,"},
    {"\"noisy\": false", "\"noise\": false", 38, "\"noise\" is unknown in a finding"},
    {"\"rules\"", "\"rulez\"", 22, "\"rulez\" is unknown in the file; expected format, made_on"},
    {"\"gap_ps\"", "\"gap_us\"", 10,
     "\"gap_us\" is unknown in \"machine\"; expected name, latency_ps"},
    {"\"nodes\": {\"from\": 96, \"to\": 96}", "\"nodes\": {\"least\": 1}", 23,
     "\"least\" is unknown in \"nodes\" of a rule; expected from, to"},
    {", \"noisy\": true", "", 39, "a finding lacks \"noisy\""},
    {"\"name\": \"measured\",\n", "\n", 6, "\"machine\" lacks \"name\""},
    {"\"format\": \"tutti tuning 1\",", "", 1, "the file lacks \"format\""},
    {"\"bytes\": 8,", "\"bytes\": 8,\n\"bytes\": 9,", 30,
     "\"bytes\" is there twice, first in line 29; expected it once", false},
    {"\"findings\": [", "\"machine\": {},\n\"findings\": [", 28,
     "\"machine\" is there twice, first in line 6", false},
    {"\"torn_lines\": 0", "\"torn\": 0", 21,
     "\"torn\" is unknown in \"placement\"; expected lines,"},
    {", \"early_words\": 2", "", 21, "\"placement\" lacks \"early_words\""},
    {"\"messages\": 1", "\"count\": 1", 21, "\"count\" is unknown in one of \"probes\"; expected"},
    // Types.
    {"\"probe\": \"one_way\"", "\"probe\": \"ping\"", 21,
     "\"probe\" of one of \"probes\" is \"ping\"; expected one of one_way, stream,"},
    {"\"lines\": 1200000", "\"lines\": true", 21,
     "\"lines\" of \"placement\" is true; expected a whole"},
    {"\"bytes\": 8,", "\"bytes\": \"8\",", 29,
     "\"bytes\" of a finding is \"8\"; expected a whole number"},
    {"\"bytes\": 8,", "\"bytes\": 8.5,", 29,
     "\"bytes\" of a finding is 8.5; expected a whole number"},
    {"\"bytes\": 8,", "\"bytes\": 8e0,", 29, "\"bytes\" of a finding is 8e0;", false},
    {"\"bytes\": 8,", "\"bytes\": null,", 29, "\"bytes\" of a finding is null;"},
    {"\"bytes\": 8,", "\"bytes\": -8,", 29, "\"bytes\" of a finding is -8;"},
    {"\"noisy\": false", "\"noisy\": 0", 38, "\"noisy\" of a finding is 0; expected true or false"},
    {"\"others\": [], ", "\"others\": {}, ", 43,
     "\"others\" of a finding is an object; expected a list"},
    {"\"format\": \"tutti tuning 1\"", "\"format\": \"tutti tuning 2\"", 2,
     "\"format\" of the file is \"tutti tuning 2\"; expected \"tutti tuning 1\""},
    {"\"device\": \"mlx5_0\"", "\"device\": 5", 3,
     "\"device\" of \"made_on\" is 5; expected a text"},
    {"\"device\": \"mlx5_0\"", "\"device\": \"a\\u001b[2J\"", 3,
     "\"device\" of \"made_on\" is \"a\\u001b[2J\"; expected a text of 0 to 200 bytes without "
     "control"},
    {"\"link\": \"InfiniBand\"", "\"link\": \"Omni-Path\"", 3,
     "\"link\" of \"made_on\" is \"Omni-Path\"; expected InfiniBand, Ethernet or nothing"},
    {"\"operators\": \"rounding\"", "\"operators\": \"sum\"", 30,
     "\"operators\" of a finding is \"sum\"; expected one of none, idempotent, exact"},
    {"\"origin\": \"measured\"},\n    \"receive", "\"origin\": \"guessed\"},\n    \"receive", 8,
     "\"origin\" of \"latency_ps\" is \"guessed\"; expected one of preset, measured, given"},
    {"{\"collective\": \"barrier\", \"across\": \"leader\"}", "7", 26,
     "a rule is 7; expected an object"},
    // Ranges.
    {"\"measured_ps\": 901200", "\"measured_ps\": 1000000000000001", 21,
     "\"measured_ps\" of one of \"probes\" is 1000000000000001; expected a whole number from 0"},
    {"\"nodes\": 96,", "\"nodes\": 0,", 29,
     "\"nodes\" of a finding is 0; expected a whole number from 1"},
    {"\"nodes\": 96,", "\"nodes\": 4294967392,", 29, "\"nodes\" of a finding is 4294967392;"},
    {"\"bytes\": 8,", "\"bytes\": 18446744073709551624,", 29,
     "\"bytes\" of a finding is 18446744073709551624"},
    {"\"bytes\": 8,", "\"bytes\": 1e999,", 29, "", false},
    {"\"measured_ps\": 6500000", "\"measured_ps\": 0", 34,
     "\"measured_ps\" of one of \"others\" is 0; expected a whole number from 1 to "
     "1000000000000000"},
    {"\"value\": 147059, \"low\": 147000, \"high\": 147100",
     "\"value\": 147059, \"low\": 147000, \"high\": 100000001", 11,
     "\"high\" of \"per_byte_fs\" is 100000001; expected a whole number from 0 to 100000000"},
    {"\"per_round\": [4, 4, 3]", "\"per_round\": [4, 0, 3]", 24,
     "an entry of \"per_round\" is 0; expected a whole number from 1 to 32768"},
    {"\"per_round\": [4, 4, 3]", "\"per_round\": []", 24,
     "\"per_round\" of a rule is a list; expected messages of"},
    {"\"mtu_bytes\": 4096", "\"mtu_bytes\": 4294971392", 4,
     "\"mtu_bytes\" of \"made_on\" is 4294971392;"},
    {"\"words\": 900000", "\"words\": 1000000000000001", 21,
     "\"words\" of \"placement\" is 1000000000000001; expected a whole number from 0 to"},
    // Contradictions.
    {"\"torn_lines\": 0", "\"torn_lines\": 1200001", 21,
     "\"torn_lines\" of \"placement\" is 1200001; expected at most the lines, 1200000", false},
    {"\"words\": 900000", "\"words\": 1", 21,
     "\"early_words\" of \"placement\" is 2; expected at most the words, 1", false},
    {"\"low\": 840000", "\"low\": 850001", 8,
     "\"low\" of \"latency_ps\" is 850001; expected at most the value, 850000", false},
    {"\"high\": 861000", "\"high\": 849999", 8,
     "\"high\" of \"latency_ps\" is 849999; expected at least the value, 850000", false},
    {"{\"from\": 96, \"to\": 96}", "{\"from\": 97, \"to\": 96}", 23,
     "\"nodes\" of a rule is empty: from 97 to 96", false},
    {"canonical_dissemination with 5,3,3 a round", "recursive_multiplying with 7,3,2 a round", 34,
     "is \"recursive_multiplying with 7,3,2 a round\", which is the winner; expected those", false},
    {"canonical_dissemination with 5,3,3 a round", "recursive_multiplying with 5,3,3 a round", 36,
     "is \"recursive_multiplying with 5,3,3 a round\" a second time", false},
    {"    {\"collective\": \"barrier\", \"bytes\": 0",
     "{\"collective\": \"allreduce\", \"bytes\": 8, \"nodes\": 96, \"ranks_per_node\": 1, "
     "\"agreement\": "
     "\"identical\",\n\"operators\": \"rounding\", \"winner\": {\"choice\": \"ring\", "
     "\"measured_ps\": 1, "
     "\"predicted_ps\": 1}, \"others\": [], \"noisy\": false},\n    {\"collective\": \"barrier\", "
     "\"bytes\": 0",
     39,
     "the winner is \"ring\", but line 29 has \"recursive_multiplying with 7,3,2 a round\" for the",
     false},
    {"\"operators\": \"none\"", "\"operators\": \"exact\"", 40,
     "\"operators\" of a finding is \"exact\"; expected none, for barrier"},
    {"\"operators\": \"rounding\"", "\"operators\": \"none\"", 30,
     "\"operators\" of a finding is \"none\"; expected an operator, for allreduce"},
    {"\"barrier\", \"bytes\": 0", "\"barrier\", \"bytes\": 1", 39,
     "\"bytes\" of a finding is 1; expected 0, for a barrier"},
    {", \"across\": \"leader\"}", "}", 26,
     "a rule asks for nothing; expected algorithm, across, tree"},
    {"\"across\": \"leader\"", "\"algorithm\": \"ring\"", 26,
     "\"algorithm\" of a rule is \"ring\"; expected automatic or dissemination, for a barrier"},
    {"\"tree\": \"binomial\"", "\"algorithm\": \"ring\"", 25,
     "\"algorithm\" of a rule is \"ring\"; expected nothing, as broadcast has none; only barrier "
     "and"},
    {"\"across\": \"leader\"", "\"tree\": \"knomial\"", 26,
     "\"tree\" of a rule is \"knomial\"; expected nothing, as barrier has none; only broadcast "
     "and"},
    // Not JSON.
    {"\"noisy\": true}\n  ]\n}\n", "\"noisy\": true}\n  ]\n", 44, "no JSON: ", false},
    {"\"noisy\": true}", "\"noisy\": true},", 44, "no JSON: ", false},
    {"  \"findings\": [", "  // what was measured\n  \"findings\": [", 28, "no JSON: ", false},
    {"\"firmware\": \"16", "\"firmware\": \"\xff", 3, "no JSON: ", false},
    {"\"firmware\": \"16", "\"firmware\": \"\n", 3, "no JSON: ", false},
    {"\"others\": [], ", "\"others\": [[[[[[[[]]]]]]]], ", 43, "nested deeper than 6", false},
};

inline std::string edited(const RefusedEdit& edit) {
  std::string text = tuning_example;
  const std::string from = edit.from;
  return text.replace(text.find(from), from.size(), edit.to);
}

/// Any value that a file may have.
class RandomTuning {
 public:
  explicit RandomTuning(std::uint64_t seed) : bits_(seed) {}

  tune::Tuning tuning() {
    tune::Tuning made;
    if (one_in(4) != 0) made.made_on = fingerprint();
    if (one_in(4) != 0) made.machine = machine();
    for (auto i = below(4); i > 0; --i) made.probe_times.push_back(probe_time());
    if (one_in(4) != 0) made.placement = placement();
    for (auto i = below(4); i > 0; --i) made.rules.push_back(rule());
    for (auto i = below(6); i > 0; --i) {
      tune::Finding one = finding();
      for (const tune::Finding& other : made.findings)
        if (one.is_about_same(other)) one.winner.choice = other.winner.choice;
      drop_winner(one);
      made.findings.push_back(std::move(one));
    }
    return made;
  }

  std::uint64_t below(std::uint64_t limit) { return bits_() % limit; }

 private:
  std::uint64_t one_in(std::uint64_t count) { return below(count); }
  /// Small ones as often as large ones; now and then the ends.
  std::uint64_t whole(std::uint64_t least, std::uint64_t most) {
    if (one_in(12) == 0) return least;
    if (one_in(12) == 0) return most;
    const std::uint64_t span = (most - least) >> below(64);
    return least + (span == UINT64_MAX ? bits_() : bits_() % (span + 1));
  }
  template <class Integer>
  Integer number(Integer least, Integer most) {
    return static_cast<Integer>(
        whole(static_cast<std::uint64_t>(least), static_cast<std::uint64_t>(most)));
  }
  template <auto last>
  decltype(last) any() {
    return detail::enumerators<last>[below(detail::enumerators<last>.size())];
  }
  std::string text(std::size_t least_bytes) {
    static const std::vector<std::string> pieces = {
        "a", "ring", "with 3,2 a round", " ", "\"", "\\", "/", "\xc3\xa9", "\xf0\x9f\x8e\xbc", ",",
        "}", "]",    "mlx5_0",           ": "};
    std::string made;
    for (auto i = below(8); i > 0 || made.size() < least_bytes; i -= i > 0 ? 1 : 0)
      made += pieces[below(pieces.size())];
    return made;
  }
  tune::Fingerprint fingerprint() {
    static const std::vector<std::string> links = {"", "InfiniBand", "Ethernet"};
    return {.device = text(0),
            .firmware = text(0),
            .link = links[below(3)],
            .gigabits_per_second = number<std::uint32_t>(0, 1'000'000),
            .mtu_bytes = number<std::uint32_t>(0, 1u << 24),
            .cpu = text(0),
            .registry = number<std::uint32_t>(0, UINT32_MAX)};
  }
  tune::Machine machine() {
    tune::Machine made{.name = text(1)};
    for (const tune::Parameter parameter : detail::enumerators<tune::Parameter::fan_max>) {
      const std::string key = key_of(parameter);
      const std::int64_t most = key.ends_with("_ps")   ? 1'000'000'000'000
                                : key.ends_with("_fs") ? 100'000'000
                                                       : 1 << 20;
      tune::Figure& figure = made[parameter];
      figure.low = number<std::int64_t>(0, most);
      figure.value = number<std::int64_t>(figure.low, most);
      figure.high = number<std::int64_t>(figure.value, most);
      figure.origin = any<tune::Origin::given>();
    }
    return made;
  }
  tune::ProbeTime probe_time() {
    constexpr std::int64_t most = 1'000'000'000'000'000;
    return {.probe = any<tune::Probe::inside_read>(),
            .bytes = number<std::uint64_t>(0, tune::probe_bytes_max),
            .messages = number<std::uint32_t>(1, tune::probe_messages_max),
            .ranks = number<std::uint32_t>(1, tune::probe_messages_max),
            .measured = number<std::int64_t>(0, most),
            .predicted = number<std::int64_t>(0, most)};
  }
  tune::WritePlacement placement() {
    tune::WritePlacement made;
    made.torn_lines = whole(0, tune::placed_writes_max);
    made.lines = whole(made.torn_lines, tune::placed_writes_max);
    made.early_words = whole(0, tune::placed_writes_max);
    made.words = whole(made.early_words, tune::placed_writes_max);
    return made;
  }
  template <class Integer>
  tune::Range<Integer> range() {
    tune::Range<Integer> made;
    if (one_in(2) == 0) made.from = number<Integer>(0, made.to);
    if (one_in(2) == 0) made.to = number<Integer>(made.from, made.to);
    return made;
  }
  tune::Rule rule() {
    tune::Rule made{.bytes = range<std::uint64_t>(),
                    .ranks = range<std::uint32_t>(),
                    .nodes = range<std::uint32_t>(),
                    .ranks_per_node = range<std::uint32_t>()};
    if (one_in(2) == 0) made.agreement = any<Agreement::relaxed>();
    for (auto i = below(4); i > 0; --i)
      made.per_round.push_back(number<std::uint32_t>(1, 1u << 15));
    switch (below(4)) {
      case 0:
        made.collective = tune::Collective::barrier;
        made.algorithm = one_in(2) == 0 ? Algorithm::automatic : Algorithm::dissemination;
        made.across = any<Across::lanes>();
        break;
      case 1:
        made.collective = one_in(2) == 0 ? tune::Collective::broadcast : tune::Collective::reduce;
        made.tree = any<Tree::fibonacci>();
        break;
      case 2:
        made.collective = any<tune::Collective::exscan>();
        if (made.per_round.empty()) made.per_round = {1};
        break;
      default:
        made.algorithm = any<Algorithm::canonical_halving>();
        made.across = any<Across::lanes>();
    }
    return made;
  }
  tune::Timing timing() {
    constexpr std::int64_t most = 1'000'000'000'000'000;
    return {.choice = text(1),
            .measured = number<std::int64_t>(1, most),
            .predicted = number<std::int64_t>(0, most)};
  }
  tune::Finding finding() {
    tune::Finding made{.collective = any<tune::Collective::exscan>(),
                       .bytes = number<std::uint64_t>(0, std::uint64_t{1} << 50),
                       .nodes = number<std::uint32_t>(1, 1u << 20),
                       .ranks_per_node = number<std::uint32_t>(1, 1u << 16),
                       .agreement = any<Agreement::relaxed>(),
                       .winner = timing(),
                       .is_noisy = one_in(2) == 0};
    if (made.collective == tune::Collective::barrier) made.bytes = 0;
    if (combines(made.collective)) do
        made.operators = any<tune::OperatorClass::ordered>();
      while (made.operators == tune::OperatorClass::none);
    for (auto i = below(4); i > 0; --i) {
      tune::Timing other = timing();
      other.choice += std::to_string(i);
      made.others.push_back(std::move(other));
    }
    return made;
  }
  static void drop_winner(tune::Finding& finding) {
    std::erase_if(finding.others,
                  [&](const tune::Timing& other) { return other.choice == finding.winner.choice; });
  }

  std::mt19937_64 bits_;
};

}  // namespace tutti::test
