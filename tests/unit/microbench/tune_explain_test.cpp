// Promise: the page of a tuning file replaces no tuning file, and what hinders it from being
// written is said with the name that was given and a remedy.
#include "microbench/tune_explain.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <tutti/status.hpp>

#include "support/scratch_folder.hpp"
#include "tune/tuning_file.hpp"

namespace tutti::bench {
namespace {

using test::content_of;

class TuneExplainTest : public ::testing::Test {
 protected:
  TuneExplainTest() {
    tune::Tuning tuning;
    tuning.machine = tune::machine_preset("fdr");
    std::ofstream(tuning_) << tune::text_of(tuning);
  }
  std::string refusal(const std::string& page) const {
    try {
      write_report(page, tuning_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "accepted";
  }
  const test::ScratchFolder folder_;
  const std::string tuning_ = folder_.path("tuning.json"), page_ = folder_.path("page.html");
};

TEST_F(TuneExplainTest, a_page_replaces_a_page) {
  std::ofstream(page_) << "<html>an older one</html>";
  EXPECT_EQ(refusal(page_), "accepted");
  EXPECT_NE(content_of(page_).find("Tuning of tutti: " + tuning_), std::string::npos);
  EXPECT_NE(::access((page_ + ".new").c_str(), F_OK), 0);
}

TEST_F(TuneExplainTest, the_tuning_file_itself_is_kept) {
  const std::string before = content_of(tuning_);
  const std::string remedy = "name another file for the page: --report FILE.html";
  ASSERT_EQ(::link(tuning_.c_str(), page_.c_str()), 0);  // another name of it
  for (const std::string& name :
       {tuning_,
        folder_.path("../" + std::filesystem::path(folder_.path()).filename().string() +
                     "/tuning.json"),
        page_}) {
    const std::string text = refusal(name);
    EXPECT_NE(text.find(name), std::string::npos) << text;
    EXPECT_NE(text.find("it is the tuning file itself; " + remedy), std::string::npos) << text;
  }
  EXPECT_EQ(content_of(tuning_), before);
}

TEST_F(TuneExplainTest, another_tuning_file_is_kept) {
  std::ofstream(page_) << content_of(tuning_);
  const std::string text = refusal(page_);
  EXPECT_NE(text.find("it is a tuning file, and would be lost; name another file"),
            std::string::npos)
      << text;
  EXPECT_EQ(content_of(page_), content_of(tuning_));
}

TEST_F(TuneExplainTest, what_cannot_be_written_is_named_as_it_was_given) {
  const std::string missing = folder_.path("missing/page.html");
  EXPECT_EQ(refusal(missing),
            missing +
                ": No such file or directory; give a file for the page that can be written: "
                "--report FILE.html");
  ASSERT_EQ(::mkdir(page_.c_str(), 0700), 0);
  EXPECT_EQ(refusal(page_), page_ +
                                ": is no ordinary file; give a file for the page that can be "
                                "written: --report FILE.html");
}

}  // namespace
}  // namespace tutti::bench
