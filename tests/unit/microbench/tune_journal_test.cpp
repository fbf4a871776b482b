// Promise: whatever instant a run ends at, its journal has all findings but the one that it was
// about; a tuning file is replaced as a whole; one run at a time writes a journal.
#include "microbench/tune_journal.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <tutti/status.hpp>

#include "runtime/file_change.hpp"
#include "support/scratch_folder.hpp"

namespace {
int changes_of_mask = 0;
}  // namespace
/// In place of the system's.
extern "C" mode_t umask(mode_t mask) noexcept {
  ++changes_of_mask;
  return static_cast<mode_t>(::syscall(SYS_umask, mask));
}

namespace tutti::bench {
namespace {

using test::content_of;

const AskedFor asked{{"collectives", "barrier"}, {"seed", "1"}};

tune::Finding finding_of(std::uint64_t bytes) {
  tune::Finding finding{.collective = tune::Collective::allreduce, .bytes = bytes, .nodes = 2};
  finding.operators = tune::OperatorClass::rounding;
  finding.winner = {"recursive_multiplying with core 1", 1'000'000, 900'000};
  finding.others = {{"ring", 2'000'000, 2'100'000}};
  return finding;
}

tune::Tuning tuning_of(const char* machine) {
  tune::Tuning tuning;
  tuning.made_on = {.device = "soft0", .link = "InfiniBand", .gigabits_per_second = 56};
  tuning.machine = tune::machine_preset(machine);
  return tuning;
}

class TuneJournalTest : public ::testing::Test {
 protected:
  bool exists(const std::string& name) const { return ::access(name.c_str(), F_OK) == 0; }
  std::string refusal() const {
    try {
      TuneJournal journal(file_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "accepted";
  }
  const test::ScratchFolder scratch_;
  const std::string& folder_ = scratch_.path();
  std::string file_ = scratch_.path("tuning.json");
};

TEST_F(TuneJournalTest, a_run_that_ends_leaves_the_file_alone) {
  {
    TuneJournal journal(file_);
    EXPECT_FALSE(journal.is_begun());
    journal.begin(asked, tuning_of("fdr"));
    journal.append(finding_of(8));
    tune::Tuning result = tuning_of("fdr");
    result.findings = {finding_of(8)};
    bool are_both_there = false;
    journal.finish(result, [&] { are_both_there = exists(file_) && exists(file_ + ".journal"); });
    EXPECT_TRUE(are_both_there);
  }
  EXPECT_FALSE(exists(file_ + ".journal"));
  EXPECT_FALSE(exists(file_ + ".new"));
  const tune::Tuning read = tune::parse_tuning(content_of(file_), file_);
  EXPECT_EQ(read.findings, std::vector<tune::Finding>{finding_of(8)});
}

TEST_F(TuneJournalTest, nothing_is_left_of_a_run_that_did_not_begin) {
  { TuneJournal journal(file_); }
  EXPECT_FALSE(exists(file_ + ".journal"));
  EXPECT_FALSE(exists(file_));
}

TEST_F(TuneJournalTest, every_cut_loses_at_most_the_last_finding) {
  {
    TuneJournal journal(file_);
    journal.begin(asked, tuning_of("qdr"));
    for (const std::uint64_t bytes : {8u, 64u, 512u}) journal.append(finding_of(bytes));
  }
  const std::string whole = content_of(file_ + ".journal");
  std::size_t lines_before = 0;
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    std::ofstream(file_ + ".journal") << whole.substr(0, size);
    const std::size_t lines = static_cast<std::size_t>(
        std::count(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size), '\n'));
    TuneJournal journal(file_);
    ASSERT_EQ(journal.is_begun(), lines >= 2) << size;
    ASSERT_EQ(journal.findings().size(), lines < 2 ? 0 : lines - 2) << size;
    ASSERT_GE(lines, lines_before);
    lines_before = lines;
    if (lines < 2) continue;
    ASSERT_EQ(journal.tuning(), tuning_of("qdr"));
    journal.append(finding_of(4096));  // behind what counts
    std::ifstream stream(file_ + ".journal");
    std::string last, line;
    while (std::getline(stream, line)) last = line;
    ASSERT_EQ(tune::parse_finding(last, "journal", 1), finding_of(4096)) << size;
  }
}

/// Limits the size of files, so that writing fails as on a full disk.
class NoRoom {
 public:
  explicit NoRoom(const std::string& file) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit now = before_;
    now.rlim_cur = std::filesystem::file_size(file) + 3;
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  NoRoom(const NoRoom&) = delete;
  NoRoom& operator=(const NoRoom&) = delete;
  ~NoRoom() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_ = {};
};

template <class Step>
std::string error_of(Step step) {
  try {
    step();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST_F(TuneJournalTest, a_full_disk_is_said_with_the_remedy_and_what_is_kept) {
  const std::string name = file_ + ".journal";
  {
    TuneJournal journal(file_);
    const NoRoom no_room(name);
    EXPECT_EQ(error_of([&] { journal.begin(asked, tuning_of("fdr")); }),
              name + ": File too large; make room, or give a file elsewhere (--out)");
  }
  EXPECT_FALSE(exists(name));  // it has nothing that would be missed
  {
    TuneJournal journal(file_);
    journal.begin(asked, tuning_of("fdr"));
    journal.append(finding_of(8));
    const NoRoom no_room(name);
    EXPECT_EQ(error_of([&] { journal.append(finding_of(16)); }),
              name +
                  ": File too large; make room and start it again with the same options: what "
                  "was found before is kept there");
  }
  TuneJournal journal(file_);
  EXPECT_EQ(journal.findings(), std::vector<tune::Finding>{finding_of(8)});
  std::filesystem::create_directory(file_);
  EXPECT_EQ(error_of([&] { journal.finish(tuning_of("fdr")); }),
            file_ +
                ": is no ordinary file; repair that and start it again with the same options: "
                "what was found is kept in " +
                name);
}

TEST_F(TuneJournalTest, a_run_about_something_else_does_not_go_on) {
  {
    TuneJournal journal(file_);
    journal.begin(asked, tuning_of("fdr"));
  }
  TuneJournal journal(file_);
  journal.require_same(asked);
  try {
    journal.require_same({{"collectives", "barrier"}, {"seed", "2"}});
    FAIL() << "accepted";
  } catch (const Error& error) {
    const std::string text = error.what();
    for (const char* part : {"seed=\"1\"", "\"2\"", "--fresh", ".journal"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST_F(TuneJournalTest, a_pipe_is_no_journal_and_is_not_waited_for) {
  ASSERT_EQ(::mkfifo((file_ + ".journal").c_str(), 0600), 0);
  EXPECT_EQ(refusal(), file_ + ".journal: is no regular file; remove it to begin anew");
}

TEST_F(TuneJournalTest, what_cannot_be_replaced_is_named_with_the_advice) {
  const auto refusal_of = [](const std::string& file) {
    try {
      runtime::replace_file(file, "text", "do this");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal_of(folder_ + "/missing/a"),
            folder_ + "/missing/a: No such file or directory; do this");
  EXPECT_EQ(refusal_of("/dev/null"), "/dev/null: is no ordinary file; do this");
  EXPECT_EQ(refusal_of(file_), "accepted");
  EXPECT_EQ(content_of(file_), "text");
}

TEST_F(TuneJournalTest, one_run_at_a_time) {
  TuneJournal journal(file_);
  EXPECT_NE(refusal().find("locked it; wait until that tutti-tune"), std::string::npos);
}

TEST_F(TuneJournalTest, a_file_that_cannot_be_written_is_refused_at_the_beginning) {
  file_ = folder_ + "/missing/tuning.json";
  EXPECT_NE(refusal().find("No such file or directory; give a file that can be written"),
            std::string::npos);
  file_ = folder_;
  EXPECT_NE(refusal().find("no ordinary file"), std::string::npos);
}

TEST_F(TuneJournalTest, another_machine_or_shape_is_another_run) {
  const tune::Fingerprint machine = tuning_of("fdr").made_on;
  const std::vector<Node> three_one{Node{0}, Node{0}, Node{0}, Node{1}};
  const std::vector<Node> two_two{Node{0}, Node{0}, Node{1}, Node{1}};
  {
    TuneJournal journal(file_);
    journal.begin(asked_of_machine(machine, three_one), tuning_of("fdr"));
  }
  const TuneJournal journal(file_);
  journal.require_same(asked_of_machine(machine, three_one));
  EXPECT_THROW(journal.require_same(asked_of_machine(machine, two_two)), Error);
  std::vector<tune::Fingerprint> others(6, machine);
  others[0].device = "mlx5_0";
  others[1].firmware = "20.1";
  others[2].link = "Ethernet";
  others[3].gigabits_per_second = 100;
  others[4].mtu_bytes = 1024;
  others[5].cpu = "another";
  for (const tune::Fingerprint& other : others)
    EXPECT_THROW(journal.require_same(asked_of_machine(other, three_one)), Error);
}

TEST_F(TuneJournalTest, fresh_forgets_whatever_is_there_at_once) {
  std::ofstream(file_ + ".journal") << "nonsense\nnonsense\n";
  TuneJournal journal(file_, true);
  EXPECT_FALSE(journal.is_begun());
  EXPECT_EQ(content_of(file_ + ".journal"), "");
}

TEST_F(TuneJournalTest, a_file_that_was_there_stays_there) {
  std::ofstream(file_ + ".journal") << "one line";
  { TuneJournal journal(file_); }
  EXPECT_EQ(content_of(file_ + ".journal"), "one line");
}

TEST_F(TuneJournalTest, a_replaced_file_keeps_its_links_and_permissions) {
  const std::string link = folder_ + "/link.json";
  std::ofstream(file_) << "before";
  ASSERT_EQ(::chmod(file_.c_str(), 0640), 0);
  ASSERT_EQ(::symlink(file_.c_str(), link.c_str()), 0);
  runtime::replace_file(link, "after", "");
  struct stat status;
  ASSERT_EQ(::lstat(link.c_str(), &status), 0);
  EXPECT_TRUE(S_ISLNK(status.st_mode));
  EXPECT_EQ(content_of(file_), "after");
  ASSERT_EQ(::stat(file_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, mode_t{0640});
  ::unlink(link.c_str());
}

TEST_F(TuneJournalTest, a_new_file_has_the_permissions_that_the_mask_leaves_which_nobody_touches) {
  const mode_t before = ::umask(027);
  changes_of_mask = 0;
  runtime::replace_file(file_, "new", "");
  EXPECT_EQ(changes_of_mask, 0) << "other threads make files meanwhile";
  ::umask(before);
  struct stat status;
  ASSERT_EQ(::stat(file_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, mode_t{0640});
  std::size_t files = 0;
  for (const auto& one : std::filesystem::directory_iterator(folder_))
    files += one.exists() ? 1 : 0;
  EXPECT_EQ(files, 1u) << "nothing is left behind";
}

TEST_F(TuneJournalTest, what_others_have_left_behind_keeps_nobody_from_writing) {
  const std::string taken = file_ + "." + std::to_string(::getpid()) + ".0";
  std::ofstream(taken) << "theirs";
  runtime::replace_file(file_, "new", "");
  EXPECT_EQ(content_of(file_), "new");
  EXPECT_EQ(content_of(taken), "theirs");
  ::unlink(taken.c_str());
}

TEST_F(TuneJournalTest, who_meets_a_lock_says_what_to_do) {
  const runtime::LockedJournal mine =
      runtime::lock_journal(file_ + ".journal", std::chrono::milliseconds(0), "", "");
  try {
    (void)runtime::lock_journal(file_ + ".journal", std::chrono::milliseconds(1), "no", "wait");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), file_ + ".journal: another process has locked it; wait");
  }
}

TEST_F(TuneJournalTest, rules_are_those_of_the_file_as_it_is_at_the_end) {
  tune::Tuning result = tuning_of("fdr"), edited = result;
  take_rules_of(file_, result);  // no file
  edited.rules = {tune::Rule{.algorithm = Algorithm::ring}};
  runtime::replace_file(file_, tune::text_of(edited), "");
  take_rules_of(file_, result);
  EXPECT_EQ(result.rules, edited.rules);
  std::ofstream(file_) << "{";
  try {
    take_rules_of(file_, result);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find(file_ + ".journal"), std::string::npos);
  }
}

TEST_F(TuneJournalTest, what_is_no_journal_is_refused_and_kept) {
  const std::string text = "{\"a\": \"b\"}\nnonsense\n";
  std::ofstream(file_ + ".journal") << text;
  const std::string why = refusal();
  EXPECT_NE(why.find("remove that file"), std::string::npos) << why;
  EXPECT_EQ(content_of(file_ + ".journal"), text);
}

}  // namespace
}  // namespace tutti::bench
