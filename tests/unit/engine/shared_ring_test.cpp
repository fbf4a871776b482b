// Promise: ranks that are threads get right results along the ring of nodes, call after call, and
// the words of the node's block order everything that they share (under ThreadSanitizer; that it
// would see a missing release is what ring_planted_release is for).
#include <gtest/gtest.h>

#include "ring_threads.hpp"

namespace tutti {
namespace {

TEST(SharedRing, words_order_what_threads_share) {
  using Shape = std::vector<std::uint32_t>;
  for (const Shape& shape : {Shape{1}, Shape{3}, Shape{1, 1}, Shape{2, 2}, Shape{3, 1},
                             Shape{2, 2, 2}, Shape{1, 2, 1, 2}})
    for (const std::size_t elements : {std::size_t{1}, std::size_t{40}})
      EXPECT_EQ(test::run_threads<std::memory_order_release>({shape, elements}, 100), 0u);
}

/// And so they do when laps follow each other in the same memory.
TEST(SharedRing, words_order_the_laps_of_a_payload) {
  using Shape = std::vector<std::uint32_t>;
  for (const Shape& shape : {Shape{3}, Shape{1, 1}, Shape{2, 2}, Shape{1, 2, 1}})
    for (const plan::RingLaps& laps :
         {plan::RingLaps{.count = 5, .in_flight = 2}, plan::RingLaps{.count = 4, .in_flight = 1}})
      for (const std::uint32_t ahead : {2u, laps.count})
        EXPECT_EQ(test::run_threads<std::memory_order_release>({shape, 200, 0, laps, ahead}, 60),
                  0u);
}

/// One half of the ring, of blocks that differ.
TEST(SharedRing, words_order_either_half) {
  using Shape = std::vector<std::uint32_t>;
  for (const plan::RingPhases phases :
       {plan::RingPhases::reduce_scatter, plan::RingPhases::allgather})
    for (const Shape& shape : {Shape{3}, Shape{1, 1}, Shape{2, 2}, Shape{1, 2, 1}})
      for (const plan::RingLaps& laps : {plan::RingLaps{}, plan::RingLaps{5, 2}})
        for (const std::uint32_t ahead : {2u, laps.count})
          EXPECT_EQ(test::run_threads<std::memory_order_release>(
                        {shape, 40, 0, laps, ahead, phases, {0, 70, 13}}, 40),
                    0u);
}

/// There are more ranks than CPUs, so that many are late and the others take their results for
/// them.
TEST(SharedRing, words_order_what_is_copied_for_others) {
  using Shape = std::vector<std::uint32_t>;
  for (const Shape& shape : {Shape{4}, Shape{3, 3}})
    EXPECT_EQ(test::run_threads<std::memory_order_release>(
                  {shape, 600, 0, {.count = 12, .in_flight = 1}, 12}, 60),
              0u);
}

/// All ranks go for one chunk at the same moment.
TEST(SharedRing, one_of_those_that_find_a_chunk_has_it) {
  using Shape = std::vector<std::uint32_t>;
  for (const Shape& shape : {Shape{2}, Shape{3}, Shape{2, 2}})
    EXPECT_EQ(test::run_threads<std::memory_order_release>({shape, 256, 1}, 4000), 0u);
}

/// Who chooses a ring counts what it takes of an arena by the shape alone.
TEST(SharedRing, takes_as_much_of_an_arena_as_is_counted_for_it) {
  for (const std::uint32_t nodes : {1u, 2u, 5u, 32u})
    for (const std::uint32_t members : {1u, 3u, 8u})
      for (const std::uint32_t sub_blocks : {1u, 4u, 9u})
        for (const std::size_t elements : {std::size_t{0}, std::size_t{1}, std::size_t{100'003}})
          for (const plan::RingLaps& laps : {plan::RingLaps{}, plan::RingLaps{7, 2}})
            for (const std::size_t element_bytes : {1u, 8u, 24u}) {
              const engine::SharedRingLayout layout{
                  .ring = {.nodes = nodes, .sub_blocks = sub_blocks},
                  .laps = laps,
                  .members = members,
                  .ahead = std::vector<std::uint32_t>(members, laps.in_flight),
                  .element_count = elements,
                  .element_bytes = element_bytes};
              EXPECT_EQ(plan::shared_ring_arena_bytes(laps, nodes, sub_blocks, members, elements,
                                                      element_bytes),
                        layout.bytes_of(0, laps.in_flight));
            }
}

TEST(SharedRing, takes_as_much_of_an_arena_as_is_counted_for_either_half) {
  for (const plan::RingPhases phases :
       {plan::RingPhases::reduce_scatter, plan::RingPhases::allgather})
    for (const plan::RingLaps& laps : {plan::RingLaps{}, plan::RingLaps{7, 2}})
      for (const std::vector<std::size_t>& blocks :
           {std::vector<std::size_t>{0}, {1000, 1000, 1000}, {0, 100'003, 1, 5000}}) {
        engine::SharedRingLayout layout{.ring = {.nodes = static_cast<std::uint32_t>(blocks.size()),
                                                 .sub_blocks = 4,
                                                 .phases = phases},
                                        .laps = laps,
                                        .members = 3,
                                        .ahead = std::vector<std::uint32_t>(3, laps.in_flight),
                                        .element_bytes = 8};
        layout.blocks.elements = blocks;
        layout.cut_blocks();
        EXPECT_EQ(plan::shared_ring_arena_bytes(laps, layout.ring, 3, blocks, 8),
                  layout.bytes_of(0, laps.in_flight));
      }
}

}  // namespace
}  // namespace tutti
