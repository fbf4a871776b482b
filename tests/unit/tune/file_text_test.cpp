// Promise: whatever has the name of a tuning file is read without waiting and without end: it is a
// regular file of a bounded size, or it is refused in a sentence.
#include "tune/file_text.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <tutti/status.hpp>

#include "support/scratch_folder.hpp"
#include "tune/json_text.hpp"

namespace tutti::tune {
namespace {

class FileTextTest : public ::testing::Test {
 protected:
  std::string refusal() const {
    try {
      return text_of_file(file_) ? "accepted" : "none";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
  }
  const test::ScratchFolder folder_;
  const std::string file_ = folder_.path("tuning.json");
};

TEST_F(FileTextTest, what_is_there_is_read) {
  EXPECT_EQ(text_of_file(file_), std::nullopt);
  std::ofstream(file_) << "{}\n";
  EXPECT_EQ(text_of_file(file_), "{}\n");
}

TEST_F(FileTextTest, a_pipe_is_not_waited_for) {
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  EXPECT_EQ(refusal(), file_ + ": is no regular file");
}

TEST_F(FileTextTest, a_device_and_a_folder_are_refused) {
  ASSERT_EQ(::symlink("/dev/zero", file_.c_str()), 0);
  EXPECT_EQ(refusal(), file_ + ": is no regular file");
  ::unlink(file_.c_str());
  ASSERT_EQ(::symlink(folder_.path().c_str(), file_.c_str()), 0);
  EXPECT_EQ(refusal(), file_ + ": is no regular file");
}

TEST_F(FileTextTest, it_may_be_as_long_as_a_text_that_is_parsed) {
  std::ofstream(file_) << std::string(json_bytes_max, ' ');
  EXPECT_EQ(refusal(), "accepted");
  std::ofstream(file_, std::ios::app) << ' ';
  EXPECT_NE(refusal().find("is longer than the 8388608 bytes"), std::string::npos) << refusal();
}

}  // namespace
}  // namespace tutti::tune
