// Secrets from files and descriptors: what is taken, and what is refused and why.
#include "bootstrap/secret.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>

#include "support/scratch_folder.hpp"
#include "tutti/detail/clock.hpp"
#include "tutti/detail/descriptor.hpp"
#include "tutti/status.hpp"

namespace tutti::bootstrap {
namespace {

using namespace std::chrono_literals;

Deadline soon(Timeout timeout = 5s) {
  return Deadline::after(timeout, detail::now());
}

template <class Read>
std::string error_of(Read&& read) {
  try {
    (void)read();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "no error";
}

class Secret : public testing::Test {
 protected:
  std::string path() const { return folder_.path("secret"); }
  void write(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(path()) << text;
    ::chmod(path().c_str(), mode);
  }
  std::string in_file() const { return secret_in_file(path(), "ORIGIN", soon()); }
  std::string refusal_of_file() const {
    return error_of([&] { return in_file(); });
  }

 private:
  test::ScratchFolder folder_;
};

TEST_F(Secret, is_what_the_file_has_without_one_newline) {
  for (const std::string text : {"correct horse", "x", " two words ", "one\n two"}) {
    for (const char* end : {"", "\n", "\r\n"}) {
      write(text + end);
      EXPECT_EQ(in_file(), text);
    }
  }
  write("x\n\n", 0400);
  EXPECT_EQ(in_file(), "x\n");
  write(std::string(256, 'k') + "\r\n");
  EXPECT_EQ(in_file(), std::string(256, 'k'));
}

// Protects: a file of another user, who knows the secret, is refused.
TEST_F(Secret, of_a_file_of_another_user_is_refused) {
  write("correct horse");
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(::chown(path().c_str(), 12345, 0), 0);
  EXPECT_TRUE(
      refusal_of_file().starts_with("ORIGIN: belongs to user 12345, who knows it; expected"))
      << refusal_of_file();
}

// Protects: a file that others may read or change is refused with its mode and what to do.
TEST_F(Secret, of_a_file_that_others_may_read_is_refused) {
  for (const mode_t mode : {0640u, 0604u, 0644u, 0620u, 0660u}) {
    write("correct horse", mode);
    const std::string text = refusal_of_file();
    EXPECT_TRUE(text.starts_with("ORIGIN: others than its owner may read or change it (mode 6"))
        << text;
    EXPECT_NE(text.find("chmod 600"), std::string::npos) << text;
    EXPECT_EQ(text.find("horse"), std::string::npos) << text;
  }
}

TEST_F(Secret, that_is_none_is_refused) {
  EXPECT_EQ(refusal_of_file(), "ORIGIN: cannot be opened: No such file or directory");
  for (const char* text : {"", "\n", "\r\n"}) {
    write(text);
    EXPECT_TRUE(refusal_of_file().starts_with("ORIGIN: has no secret")) << refusal_of_file();
  }
  for (const std::size_t bytes : {257u, 258u, 259u, 100'000u}) {
    write(std::string(bytes, 'k'));
    EXPECT_TRUE(refusal_of_file().starts_with("ORIGIN: has more than 256 bytes"))
        << refusal_of_file();
  }
  ::unlink(path().c_str());
  ::mkdir(path().c_str(), 0700);
  EXPECT_TRUE(refusal_of_file().starts_with("ORIGIN: is no file")) << refusal_of_file();
  ::rmdir(path().c_str());
  ::mkfifo(path().c_str(), 0600);
  const std::string text = error_of([&] { return secret_in_file(path(), "ORIGIN", soon(50ms)); });
  EXPECT_TRUE(text.starts_with("ORIGIN: its end has not come in time")) << text;
}

// Protects: a pipe is read to its end, and closed, so that children have no copy.
TEST_F(Secret, comes_through_a_pipe) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(::write(ends[1], "correct ", 8), 8);
  ASSERT_EQ(::write(ends[1], "horse\n", 6), 6);
  ::close(ends[1]);
  EXPECT_EQ(secret_from_descriptor(ends[0], "ORIGIN", soon()), "correct horse");
  EXPECT_EQ(::fcntl(ends[0], F_GETFD), -1);
}

// Protects: nobody waits forever for whoever does not close his end.
TEST_F(Secret, whose_end_does_not_come_is_refused) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const detail::Descriptor other(ends[1]);
  ASSERT_EQ(::write(other.get(), "x", 1), 1);
  const std::string text =
      error_of([&] { return secret_from_descriptor(ends[0], "ORIGIN", soon(50ms)); });
  EXPECT_TRUE(text.starts_with("ORIGIN: its end has not come in time")) << text;
}

// Protects: ranks whose parent has opened one file for all of them read it all, whoever is first.
TEST_F(Secret, of_a_file_opened_once_is_there_for_each) {
  const detail::Descriptor file(::memfd_create("secret", MFD_CLOEXEC));
  ASSERT_EQ(::write(file.get(), "correct horse", 13), 13);
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_EQ(secret_from_descriptor(::dup(file.get()), "ORIGIN", soon()), "correct horse");
}

TEST_F(Secret, needs_an_open_descriptor) {
  const std::string text =
      error_of([] { return secret_from_descriptor(1'000'000, "ORIGIN", soon()); });
  EXPECT_TRUE(text.starts_with("ORIGIN: expected an open descriptor")) << text;
}

}  // namespace
}  // namespace tutti::bootstrap
