// Promise: ranks of a node hear how long a word takes between two of them, whether payloads may be
// read where their users have them or not, and whatever the user has said of that.
#include "runtime/neighbourhood.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <tutti/detail/descriptor.hpp>
#include <vector>

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

/// What rank `self` of two has heard, where a word takes `word_ns`, and whether it was asked to
/// measure copies, if it measured at all.
struct Heard {
  Neighbourhood all;
  std::optional<bool> copies = {};
};
Heard meet(std::uint32_t self, std::optional<std::size_t> single_copy_bytes,
           std::optional<double> word_ns) {
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
      Rank{self}, cards, settings, wakers,
      [](std::span<const std::byte> mine) {  // the other rank says the same
        std::vector<std::byte> both(mine.begin(), mine.end());
        both.insert(both.end(), mine.begin(), mine.end());
        return both;
      },
      [&](const NeighbourMapping&, bool leads, bool copies) -> std::optional<shm::CopyCosts> {
        EXPECT_EQ(leads, self == 0);
        heard.copies = copies;
        if (!word_ns) return std::nullopt;
        return shm::CopyCosts{.word = *word_ns, .is_word_alone = !copies};
      });
  return heard;
}

TEST(Neighbourhood, a_word_is_measured_whatever_is_to_be_read) {
  for (const std::uint32_t self : {0u, 1u})
    for (const auto& bytes : std::vector<std::optional<std::size_t>>{{}, 0, 1u << 30, SIZE_MAX}) {
      const Heard slow = meet(self, bytes, 240.0), fast = meet(self, bytes, 70.0);
      EXPECT_EQ(slow.copies, !bytes.has_value());
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
  all.costs.push_back(shm::CopyCosts{.word = 250, .is_word_alone = true});
  EXPECT_TRUE(all.caches_are_apart());
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
  for (const shm::ReadRange& range : reads_of(all, {})) EXPECT_FALSE(range.holds(64u << 20));
}

}  // namespace
}  // namespace tutti::runtime
