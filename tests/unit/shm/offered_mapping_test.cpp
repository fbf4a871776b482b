// Promise: map_offered() maps the memory that was offered, or says why it does not.
#include "shm/offered_mapping.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <tutti/status.hpp>

namespace tutti::shm {
namespace {

constexpr std::size_t bytes = 8192;

struct Memory {
  explicit Memory(std::size_t size = bytes, bool sealed = true)
      : file(::memfd_create("offered", MFD_CLOEXEC | MFD_ALLOW_SEALING)),
        mapping(std::make_shared<detail::Mapping>(map(file.get(), size), size)) {
    if (sealed) {
      EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    }
  }

  static void* map(int descriptor, std::size_t size) {
    EXPECT_EQ(::ftruncate(descriptor, static_cast<off_t>(size)), 0);
    return ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  }

  detail::Descriptor file;
  std::shared_ptr<detail::Mapping> mapping;
};

std::string refusal_of(const MappingCard& card) {
  try {
    (void)map_offered(card);
  } catch (const Error& error) {
    return error.what();
  }
  return "mapped";
}

TEST(OfferedMapping, is_one_mapping_in_its_own_process) {
  const Memory memory;
  const OfferedMapping offered(42, memory.mapping, memory.file.get());
  EXPECT_EQ(map_offered(offered.card()), memory.mapping);
}

TEST(OfferedMapping, is_the_same_memory_in_another_process) {
  // Offered by a child, mapped by this process, which has never heard of it.
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  int stay[2];
  ASSERT_EQ(::pipe(stay), 0);
  const pid_t owner = ::fork();
  if (owner == 0) {
    ::close(stay[1]);
    const Memory memory;
    memory.mapping->data()[100] = std::byte{7};
    const OfferedMapping offered(43, memory.mapping, memory.file.get());
    const MappingCard card = offered.card();
    char byte = 0;
    if (::write(ends[1], &card, sizeof card) != sizeof card) ::_exit(1);
    (void)!::read(stay[0], &byte, 1);
    ::_exit(memory.mapping->data()[101] == std::byte{8} ? 0 : 1);
  }
  ::close(stay[0]);
  MappingCard card;
  ASSERT_EQ(::read(ends[0], &card, sizeof card), static_cast<ssize_t>(sizeof card));
  const auto mapping = map_offered(card);
  EXPECT_EQ(mapping->data()[100], std::byte{7});
  EXPECT_EQ(map_offered(card), mapping);
  mapping->data()[101] = std::byte{8};

  MappingCard wrong = card;
  wrong.nonce = 44;
  EXPECT_NE(refusal_of(wrong).find("other memory"), std::string::npos);
  wrong.bytes = 2 * bytes;
  EXPECT_NE(refusal_of(wrong).find("another file"), std::string::npos);
  wrong.descriptor = ends[1];
  EXPECT_NE(refusal_of(wrong).find("/fd/"), std::string::npos);

  ::close(stay[1]);
  int status = 0;
  ASSERT_EQ(::waitpid(owner, &status, 0), owner);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  // Its owner is gone, the memory is not.
  EXPECT_EQ(mapping->data()[101], std::byte{8});
  MappingCard late = card;
  late.nonce = 45;
  EXPECT_NE(refusal_of(late).find("opening the offered memory"), std::string::npos);
  for (const int end : ends) ::close(end);
}

/// Its owner could shrink it, and whoever had mapped it would end by SIGBUS.
TEST(OfferedMapping, of_a_file_that_is_not_sealed_is_refused) {
  const Memory memory(bytes, false);
  const std::uint64_t nonce = 47;
  std::memcpy(memory.mapping->data(), &nonce, sizeof nonce);
  const MappingCard card{
      .nonce = nonce, .bytes = bytes, .process = ::getpid(), .descriptor = memory.file.get()};
  EXPECT_NE(refusal_of(card).find("another file"), std::string::npos) << refusal_of(card);
}

TEST(OfferedMapping, is_no_longer_offered_when_its_owner_lets_go) {
  MappingCard card;
  {
    const Memory memory;
    const OfferedMapping offered(46, memory.mapping, memory.file.get());
    card = offered.card();
  }
  EXPECT_NE(refusal_of(card), "mapped");
}

}  // namespace
}  // namespace tutti::shm
