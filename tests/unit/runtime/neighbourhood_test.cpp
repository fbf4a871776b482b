// Promise: ranks of a node hear how long a word takes between two of them, whether payloads may be
// read where their users have them or not, and whatever the user has said of that; and two of them
// measure once.
#include "runtime/neighbourhood.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tutti/detail/descriptor.hpp>
#include <vector>

#include "../../support/process_memory.hpp"
#include "shm/peer_memory.hpp"

namespace tutti::runtime {
namespace {

/// The memory that a rank offers its neighbours, here all in this process.
struct Offered {
  static constexpr std::size_t bytes = 4096;

  explicit Offered(std::uint64_t nonce)
      : file(::memfd_create("offered", MFD_CLOEXEC | MFD_ALLOW_SEALING)),
        mapping(std::make_shared<detail::Mapping>(map(file.get()), bytes)),
        offered(nonce, mapping, file.get()) {
    EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  }
  static void* map(int descriptor) {
    EXPECT_EQ(::ftruncate(descriptor, bytes), 0);
    return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  }

  detail::Descriptor file;
  std::shared_ptr<detail::Mapping> mapping;
  shm::OfferedMapping offered;
};

/// What rank `self` of two has heard, where a word takes `word_ns`, whether it was asked to measure
/// copies, if it measured at all, and whether there was nothing left to measure.
struct Heard {
  Neighbourhood all;
  std::optional<bool> copies = {};
  bool is_settled = false;
};
Heard meet(std::uint32_t self, std::optional<std::size_t> single_copy_bytes,
           std::optional<double> word_ns, shm::KnownCosts& known) {
  const Offered all_offered[] = {Offered(40 + self), Offered(50 + self)};
  std::vector<NeighbourCard> cards;
  for (const Offered& one : all_offered)
    cards.push_back(
        {.host = bootstrap::host_identity(), .domain = 0, .mapping = one.offered.card()});
  ContextSettings settings;
  settings.single_copy_bytes = single_copy_bytes;
  shm::Wakers wakers;
  Heard heard;
  heard.all = meet_neighbours(
      Rank{self}, cards, std::nullopt, settings, wakers, known,
      [](std::span<const std::byte> mine) {  // the other rank says the same
        std::vector<std::byte> both(mine.begin(), mine.end());
        both.insert(both.end(), mine.begin(), mine.end());
        return both;
      },
      [&](const Measuring& what) -> std::optional<shm::CopyCosts> {
        EXPECT_EQ(what.leads, self == 0);
        heard.copies = what.copies;
        heard.is_settled = what.is_settled;
        if (!word_ns) return std::nullopt;
        return shm::CopyCosts{.word = *word_ns, .is_word_alone = !what.copies};
      });
  return heard;
}
Heard meet(std::uint32_t self, std::optional<std::size_t> single_copy_bytes,
           std::optional<double> word_ns) {
  shm::KnownCosts known;
  return meet(self, single_copy_bytes, word_ns, known);
}

TEST(Neighbourhood, two_ranks_measure_once) {
  for (const std::uint32_t self : {0u, 1u}) {
    shm::KnownCosts known;
    EXPECT_FALSE(meet(self, {}, 70.0, known).is_settled);
    const Heard again = meet(self, {}, std::nullopt, known);
    EXPECT_TRUE(again.is_settled);
    // A leader says what is known; the other rank hears it from the leader, which says nothing
    // here.
    ASSERT_EQ(again.all.costs.size(), 1u);
    EXPECT_EQ(again.all.costs[0].has_value(), self == 0);
    // Each knows it, also where the other one leads.
    EXPECT_EQ(known.with(self == 0 ? 50 : 41)->word, 70.0);
  }
}

TEST(Neighbourhood, two_ranks_that_never_meet_in_time_give_up) {
  for (const std::uint32_t self : {0u, 1u}) {
    shm::KnownCosts known;
    unsigned tries = 0;
    while (tries < 100 && !meet(self, {}, std::nullopt, known).is_settled) ++tries;
    EXPECT_EQ(tries, shm::KnownCosts::tries_max);
  }
}

// Without it, the first message to each page would go by way of the kernel.
TEST(Neighbourhood, what_messages_use_is_in_the_page_tables) {
  constexpr std::size_t bytes = 256u << 10;
  const detail::Descriptor file(::memfd_create("neighbour-of-test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), bytes), 0);
  ASSERT_EQ(::fallocate(file.get(), 0, 0, bytes), 0);
  const NeighbourMapping mapped{
      .mapping = std::make_shared<detail::Mapping>(
          ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0), bytes),
      .card = {.nonce = 1, .bytes = bytes, .address = 1u << 20}};
  const std::string name = "neighbour-of-test";
  EXPECT_EQ(test::resident_bytes_of(name), 0u);
  EXPECT_EQ(mapped.at((1u << 20) + 100, 8), mapped.mapping->data() + 100);
  EXPECT_EQ(test::resident_bytes_of(name), 0u);
  EXPECT_EQ(mapped.prepared((1u << 20) + 4000, 60000), mapped.mapping->data() + 4000);
  const std::size_t prepared = test::resident_bytes_of(name);
  if (::madvise(mapped.mapping->data(), 4096, 23) != 0 || test::resident_bytes_of(name) == 0)
    GTEST_SKIP() << "kernel before 5.14, or one that is emulated";
  EXPECT_EQ(prepared, 64u << 10);
}

TEST(Neighbourhood, a_word_is_measured_whatever_is_to_be_read) {
  // Emulated processes cannot read each other.
  std::byte byte{};
  const bool can_read =
      shm::read_peer_memory(::getpid(), reinterpret_cast<std::uintptr_t>(&byte), &byte, 1) == 0;
  for (const std::uint32_t self : {0u, 1u})
    for (const auto& bytes : std::vector<std::optional<std::size_t>>{{}, 0, 1u << 30, SIZE_MAX}) {
      const Heard slow = meet(self, bytes, 240.0), fast = meet(self, bytes, 70.0);
      EXPECT_EQ(slow.copies, can_read && !bytes.has_value());
      EXPECT_TRUE(slow.all.caches_are_apart());
      EXPECT_FALSE(fast.all.caches_are_apart());
      EXPECT_FALSE(meet(self, bytes, std::nullopt).all.caches_are_apart());
    }
}

TEST(Neighbourhood, caches_of_one_node_apart_are_enough) {
  Neighbourhood all;
  EXPECT_FALSE(all.caches_are_apart());
  all.costs = {std::nullopt, shm::CopyCosts{.word = 60}};
  EXPECT_FALSE(all.caches_are_apart());
  EXPECT_EQ(all.copies_for_readers(false).gain_min(), detail::BulkCopy::gain_of_streaming);
  all.costs.push_back(shm::CopyCosts{.word = 250, .is_word_alone = true});
  EXPECT_TRUE(all.caches_are_apart());
  EXPECT_EQ(all.copies_for_readers(false).gain_min(), detail::BulkCopy::gain_between_caches);
  EXPECT_EQ(all.copies_for_readers(true).gain_min(), detail::BulkCopy::gain_of_streaming);
}

// A time of a word says nothing of copies.
TEST(Neighbourhood, a_word_alone_decides_no_reading) {
  Neighbourhood all{.nodes = {.node = {Node{0}, Node{0}},
                              .local_rank = {LocalRank{0}, LocalRank{1}},
                              .node_count = 1},
                    .mappings = {},
                    .reads_peers = true,
                    .costs = {shm::CopyCosts{.word = 60, .is_word_alone = true}},
                    .domain = {},
                    .remark = {}};
  for (const shm::ReadRange& range : reads_of(all, {}, false)) EXPECT_FALSE(range.holds(64u << 20));
}

}  // namespace
}  // namespace tutti::runtime
