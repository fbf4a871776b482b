#include "tune/machine.hpp"

#include <algorithm>
#include <iterator>
#include <tutti/detail/enumerators.hpp>
#include <tutti/status.hpp>
#include <utility>

namespace tutti::tune {
namespace {

/// Figures are those of the emulated networks (verbs/soft/fabric_model.cpp, which says
/// where they are from), but for combining, which takes no time there: about what a core does that
/// adds doubles, 8 GB/s and 10 ns a message (assumed).
struct Preset {
  const char* name;
  bool is_ethernet;
  std::uint32_t gigabits_per_second;  // as ports say, before coding
  std::int64_t latency, receive_overhead, gap, per_byte;
};
constexpr Preset presets[] = {
    {"qdr", false, 40, 1'200'000, 100'000, 150'000, 250'000},
    {"fdr", false, 56, 850'000, 50'000, 100'000, 147'059},
    {"edr", false, 100, 720'000, 50'000, 50'000, 82'645},
    {"hdr", false, 200, 700'000, 50'000, 25'000, 41'322},
    {"ndr", false, 400, 700'000, 50'000, 15'000, 20'661},
    {"roce100", true, 100, 1'020'000, 50'000, 50'000, 86'207},
    {"roce25", true, 25, 1'220'000, 50'000, 50'000, 344'828},
    {"roce10", true, 10, 1'450'000, 50'000, 100'000, 862'069},
};
constexpr std::size_t preset_count = std::size(presets);

Machine machine_of(const Preset& preset) {
  Machine machine{.name = preset.name};
  const auto set = [&](Parameter parameter, std::int64_t value) {
    machine[parameter] = {.value = value, .low = value, .high = value, .origin = Origin::preset};
  };
  set(Parameter::latency, preset.latency);
  set(Parameter::receive_overhead, preset.receive_overhead);
  set(Parameter::gap, preset.gap);
  set(Parameter::rank_gap, 0);  // the port's gap limits a rank, too
  set(Parameter::per_byte, preset.per_byte);
  set(Parameter::combine, 10'000);
  set(Parameter::combine_per_byte, 125'000);
  set(Parameter::inside_latency, 100'000);
  set(Parameter::inside_send_overhead, 20'000);
  set(Parameter::inside_receive_overhead, 20'000);
  set(Parameter::inside_per_byte, 100'000);
  set(Parameter::inside_read_overhead, 500'000);
  set(Parameter::inside_read_per_byte, 100'000);
  set(Parameter::fan_max, 0);
  return machine;
}

const std::array<Machine, preset_count>& preset_machines() {
  static const std::array<Machine, preset_count> machines = [] {
    std::array<Machine, preset_count> made;
    std::transform(std::begin(presets), std::end(presets), made.begin(), machine_of);
    return made;
  }();
  return machines;
}

}  // namespace

const char* name_of(Origin origin) noexcept {
  return detail::name_in<Origin::given>({"preset", "measured", "given"}, origin);
}

const char* key_of(Parameter parameter) noexcept {
  static_assert(parameter_count == static_cast<std::size_t>(Parameter::fan_max) + 1);
  return detail::name_in<Parameter::fan_max>(
      {"latency_ps", "receive_overhead_ps", "gap_ps", "rank_gap_ps", "per_byte_fs", "combine_ps",
       "combine_per_byte_fs", "inside_latency_ps", "inside_send_overhead_ps",
       "inside_receive_overhead_ps", "inside_per_byte_fs", "inside_read_overhead_ps",
       "inside_read_per_byte_fs", "fan_max"},
      parameter);
}

std::int64_t most_of(Parameter parameter) noexcept {
  const std::string_view key = key_of(parameter);
  if (key.ends_with("_ps")) return 1'000'000'000'000;
  return key.ends_with("_fs") ? 100'000'000 : 1 << 20;
}

plan::Network Machine::network() const {
  const auto value = [&](Parameter parameter) { return (*this)[parameter].value; };
  const auto rate = [&](Parameter parameter) {
    return plan::Rate{.time = value(parameter), .bytes = 1000};  // femtoseconds a byte
  };
  return {.between = {.latency = value(Parameter::latency),
                      .receive_overhead = value(Parameter::receive_overhead),
                      .gap = value(Parameter::gap),
                      .rank_gap = value(Parameter::rank_gap),
                      .per_byte = rate(Parameter::per_byte),
                      .work = value(Parameter::combine),
                      .work_per_byte = rate(Parameter::combine_per_byte)},
          .inside = {.latency = value(Parameter::inside_latency),
                     .send_overhead = value(Parameter::inside_send_overhead),
                     .per_byte = rate(Parameter::inside_per_byte),
                     .receive_overhead = value(Parameter::inside_receive_overhead),
                     .read_overhead = value(Parameter::inside_read_overhead),
                     .read_per_byte = rate(Parameter::inside_read_per_byte)}};
}

bool Machine::may_be(const Machine& other) const noexcept {
  for (std::size_t i = 0; i < static_cast<std::size_t>(Parameter::fan_max); ++i) {
    const Figure& figure = figures[i];
    const std::int64_t value = other.figures[i].value;
    // Where no gap of ranks is known, that of the port limits them.
    const bool is_limited = static_cast<Parameter>(i) == Parameter::rank_gap && value == 0 &&
                            figure.low <= other[Parameter::gap].value;
    if (!is_limited && (value < figure.low || value > figure.high)) return false;
  }
  return true;
}

const Machine& machine_preset(std::string_view name) {
  std::string names;
  for (const Machine& machine : preset_machines()) {
    if (machine.name == name) return machine;
    names += (names.empty() ? "" : ", ") + machine.name;
  }
  throw Error(ErrorCode::invalid_argument,
              "machine \"" + std::string(name) + "\" is no preset; use one of " + names);
}

const Machine& machine_of_link(bool is_ethernet, std::uint32_t gigabits_per_second) {
  if (gigabits_per_second == 0) return machine_preset(is_ethernet ? "roce25" : "fdr");
  // By their quotient: 40 is as far from 10 as from 160.
  const std::uint64_t rate = gigabits_per_second;
  const Preset* nearest = nullptr;
  for (const Preset& preset : presets) {
    if (preset.is_ethernet != is_ethernet) continue;
    const auto off = [&](const Preset& one) {
      const std::uint64_t of_one = one.gigabits_per_second;
      return std::pair(std::max(rate, of_one), std::min(rate, of_one));
    };
    if (nearest != nullptr) {
      const auto [larger, smaller] = off(preset);
      const auto [nearest_larger, nearest_smaller] = off(*nearest);
      if (larger * nearest_smaller >= nearest_larger * smaller) continue;
    }
    nearest = &preset;
  }
  return machine_preset(nearest->name);
}

}  // namespace tutti::tune
