// Promise: what a stress has seen of a device allows something only if enough was seen, all of it
// good, on this kind of device, firmware and CPU; one violation forbids it.
#include "tune/write_placement.hpp"

#include <gtest/gtest.h>

#include "tune/tuning.hpp"

namespace tutti::tune {
namespace {

TEST(WritePlacement, enough_that_is_good_allows_and_one_violation_forbids) {
  WritePlacement seen;
  EXPECT_EQ(evidence_for_lines(seen), Evidence::none);
  EXPECT_EQ(evidence_for_order(seen), Evidence::none);
  seen = {.lines = placed_writes_needed - 1, .words = placed_writes_needed};
  EXPECT_EQ(evidence_for_lines(seen), Evidence::too_little);
  EXPECT_EQ(evidence_for_order(seen), Evidence::holds);
  seen = {.lines = placed_writes_needed, .words = placed_writes_needed - 1};
  EXPECT_EQ(evidence_for_lines(seen), Evidence::holds);
  EXPECT_EQ(evidence_for_order(seen), Evidence::too_little);
  seen = {.lines = placed_writes_max, .torn_lines = 1, .words = 1, .early_words = 1};
  EXPECT_EQ(evidence_for_lines(seen), Evidence::violated);
  EXPECT_EQ(evidence_for_order(seen), Evidence::violated);
}

TEST(WritePlacement, words_have_the_numbers_and_what_is_missing) {
  const WritePlacement good{.lines = 1'200'000, .words = 5};
  EXPECT_EQ(words_on_lines(good), "1200000 lines were seen to come, all of them whole");
  EXPECT_EQ(words_on_order(good),
            "5 words were seen to come, all of them after what was written earlier, but 1000000 "
            "are needed");
  const WritePlacement bad{.lines = 7, .torn_lines = 2, .words = 9, .early_words = 3};
  EXPECT_EQ(words_on_lines(bad), "7 lines were seen to come, 2 of them torn");
  EXPECT_EQ(words_on_order(bad),
            "9 words were seen to come, 3 of them before what was written earlier");
  EXPECT_EQ(words_on_lines({}), "no lines were seen to come");
}

TEST(WritePlacement, several_stresses_add_up_to_what_a_file_can_count) {
  const WritePlacement one{.lines = 1, .torn_lines = 2, .words = 3, .early_words = 4};
  EXPECT_EQ(sum_of(one, {.lines = 10, .torn_lines = 20, .words = 30, .early_words = 40}),
            (WritePlacement{.lines = 11, .torn_lines = 22, .words = 33, .early_words = 44}));
  EXPECT_EQ(sum_of(one, {.lines = placed_writes_max}).lines, placed_writes_max);
}

TEST(WritePlacement, holds_for_no_other_device) {
  const Fingerprint here{.device = "mlx5_0",
                         .firmware = "16.35.2000",
                         .link = "InfiniBand",
                         .gigabits_per_second = 100,
                         .mtu_bytes = 4096,
                         .cpu = "EPYC",
                         .registry = 1};
  const auto why = [&](auto change) {
    Fingerprint there = here;
    change(there);
    return why_placement_differs(there, here);
  };
  EXPECT_EQ(why([](Fingerprint&) {}), "");
  EXPECT_EQ(why([](Fingerprint& there) { there.device = "mlx5_1"; }), "");
  // What has nothing to do with it.
  EXPECT_EQ(why([](Fingerprint& there) { there.mtu_bytes = 1024; }), "");
  EXPECT_EQ(why([](Fingerprint& there) { there.registry = 7; }), "");
  EXPECT_EQ(why([](Fingerprint& there) { there.firmware = "16.36"; }),
            "the firmware was \"16.36\", here it is \"16.35.2000\"");
  EXPECT_EQ(why([](Fingerprint& there) { there.cpu = "Xeon"; }),
            "the CPU was \"Xeon\", here it is \"EPYC\"");
  EXPECT_NE(why([](Fingerprint& there) { there.device = "rxe0"; }).find("device was \"rxe0\""),
            std::string::npos);
  // Unlike for findings, what is not known counts.
  EXPECT_NE(why([](Fingerprint& there) { there.firmware.clear(); }), "");
  EXPECT_NE(why([](Fingerprint& there) { there.cpu.clear(); }), "");
  EXPECT_NE(why([](Fingerprint& there) { there.device.clear(); }), "");
  Fingerprint rxe = here;
  rxe.firmware.clear();
  for (const char* none : {"", "0", "0.0.0", "unknown"}) {
    rxe.firmware = none;
    EXPECT_EQ(why_placement_differs(rxe, rxe),
              "the device has no firmware version, by which it could be told from others")
        << none;
    EXPECT_NE(why_placement_differs(here, rxe), "") << none;
  }
  rxe.firmware = "10.0.0";
  EXPECT_EQ(why_placement_differs(rxe, rxe), "");
  rxe.cpu = "unknown";  // as it is said where /proc/cpuinfo has no model name
  EXPECT_EQ(why_placement_differs(rxe, rxe),
            "the system does not name the CPU, so that it cannot be told from others");
}

TEST(WritePlacement, of_several_ranks_holds_only_if_they_are_alike) {
  const Fingerprint one{.device = "mlx5_0", .firmware = "16.35", .cpu = "EPYC"};
  std::vector<Fingerprint> all(3, one);
  all[1].device = "mlx5_1";
  EXPECT_EQ(why_ranks_differ(all), "");
  all[2].cpu = "Xeon";
  EXPECT_EQ(why_ranks_differ(all),
            "on rank 0 and rank 2 it differs: the CPU was \"EPYC\", here it is \"Xeon\"");
  all[2] = one;
  all[1].firmware = "16.36";
  EXPECT_NE(why_ranks_differ(all).find("rank 1 it differs: the firmware was"), std::string::npos);
  EXPECT_NE(why_ranks_differ({{.device = "rxe0", .firmware = "0.0.0", .cpu = "EPYC"}}), "");
}

}  // namespace
}  // namespace tutti::tune
