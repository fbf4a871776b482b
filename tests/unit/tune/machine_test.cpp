// Promise: the presets by which schedules are priced are the emulated networks of these names; a
// port of any rate has a preset.
#include "tune/machine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <tutti/detail/enumerators.hpp>
#include <tutti/status.hpp>

#include "verbs/soft/fabric_model.hpp"

namespace tutti::tune {
namespace {

TEST(Machine, presets_are_the_emulated_networks_but_for_combining) {
  std::string names = verbs::soft::fabric_preset_names();
  std::size_t count = 0;
  for (std::size_t at = 0; at < names.size(); ++count) {
    const std::size_t end = std::min(names.find(", ", at), names.size());
    const std::string name = names.substr(at, end - at);
    at = end + 2;
    const plan::Network network = machine_preset(name).network();
    const verbs::soft::FabricModel model = verbs::soft::read_fabric_model(name);
    const auto& [between, inside] = network;
    EXPECT_EQ(machine_preset(name).name, name);
    EXPECT_EQ(between.latency + between.send_overhead, model.latency + model.send_overhead) << name;
    EXPECT_EQ(between.receive_overhead, model.receive_overhead) << name;
    EXPECT_EQ(between.gap, model.gap) << name;
    EXPECT_EQ(between.rank_gap, model.rank_gap) << name;
    for (const std::size_t bytes : {8u, 4096u, 1u << 20}) {
      const auto whole = static_cast<plan::Picoseconds>(bytes >> 10);  // femtoseconds are rounded
      EXPECT_LE(std::abs(between.per_byte.of(bytes) - model.wire_time(bytes)), whole + 1) << name;
      EXPECT_EQ(inside.store_time(bytes), model.inside.store_time(bytes)) << name;
      EXPECT_EQ(inside.read_time(bytes), model.inside.read_time(bytes)) << name;
    }
    EXPECT_EQ(inside.latency, model.inside.latency) << name;
    EXPECT_EQ(inside.receive_overhead, model.inside.receive_overhead) << name;
    EXPECT_EQ(model.work_time(1 << 20), 0) << "emulated programs combine in no time by default";
    EXPECT_GT(between.work_time(1), 0) << name;
    for (const Figure& figure : machine_preset(name).figures) {
      EXPECT_EQ(figure.origin, Origin::preset);
      EXPECT_EQ(figure.low, figure.value);
      EXPECT_EQ(figure.high, figure.value);
    }
  }
  EXPECT_EQ(count, 8u);
  EXPECT_THROW((void)machine_preset("sdr"), Error);
}

TEST(Machine, may_be_another_one_whose_figures_are_in_all_its_intervals) {
  const Machine& fdr = machine_preset("fdr");
  EXPECT_TRUE(fdr.may_be(fdr));
  EXPECT_FALSE(machine_preset("edr").may_be(fdr));
  for (const Parameter parameter : detail::enumerators<Parameter::inside_read_per_byte>) {
    if (parameter == Parameter::rank_gap) continue;  // below
    Machine measured = fdr;
    Figure& figure = measured[parameter];
    figure.value += figure.value / 20;
    figure.high = figure.value;
    EXPECT_TRUE(measured.may_be(fdr)) << key_of(parameter);
    figure.low = fdr[parameter].value + 1;
    EXPECT_FALSE(measured.may_be(fdr)) << key_of(parameter);
    figure.low = 0;
    figure.high = fdr[parameter].value - 1;
    EXPECT_FALSE(measured.may_be(fdr)) << key_of(parameter);
  }
  Machine posting = fdr;  // which takes less than the gap of a port, then more
  posting[Parameter::rank_gap] = {.value = 60'000, .low = 59'000, .high = 61'000};
  EXPECT_TRUE(posting.may_be(fdr));
  posting[Parameter::rank_gap] = {.value = 120'000, .low = 119'000, .high = 121'000};
  EXPECT_FALSE(posting.may_be(fdr));
  Machine crowded = fdr;  // no price depends on that
  crowded[Parameter::fan_max] = {.value = 8, .low = 8, .high = 8};
  EXPECT_TRUE(crowded.may_be(fdr));
}

TEST(Machine, a_port_of_any_rate_has_the_nearest_preset_of_its_kind) {
  EXPECT_EQ(machine_of_link(false, 0).name, "fdr");
  EXPECT_EQ(machine_of_link(true, 0).name, "roce25");
  for (const auto& [rate, name] : {std::pair{8u, "qdr"},
                                   {40u, "qdr"},
                                   {56u, "fdr"},
                                   {100u, "edr"},
                                   {200u, "hdr"},
                                   {400u, "ndr"},
                                   {800u, "ndr"}})
    EXPECT_EQ(machine_of_link(false, rate).name, name) << rate;
  for (const auto& [rate, name] : {std::pair{1u, "roce10"},
                                   {10u, "roce10"},
                                   {25u, "roce25"},
                                   {40u, "roce25"},
                                   {100u, "roce100"},
                                   {400u, "roce100"}})
    EXPECT_EQ(machine_of_link(true, rate).name, name) << rate;
}

TEST(Machine, every_parameter_has_a_key_of_its_own_with_its_unit) {
  EXPECT_STREQ(key_of(Parameter::latency), "latency_ps");
  EXPECT_STREQ(key_of(Parameter::per_byte), "per_byte_fs");
  EXPECT_STREQ(key_of(Parameter::fan_max), "fan_max");
  EXPECT_STREQ(name_of(Origin::measured), "measured");
}

}  // namespace
}  // namespace tutti::tune
