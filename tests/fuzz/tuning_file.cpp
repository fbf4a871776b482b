// A tuning file, or a line of a journal, is refused with its name and a line in one sentence, or
// read as it would be written.
#include <algorithm>
#include <string>
#include <tutti/status.hpp>

#include "../unit/tune/tuning_texts.hpp"
#include "fuzz.hpp"
#include "tune/tuning_file.hpp"

namespace tutti::fuzz {
namespace {

template <class Read>
void judge_reading(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    const std::string what = error.what();
    const std::size_t end = what.find(": ");
    promise(error.code() == ErrorCode::invalid_argument, "an invalid file is the user's", what);
    promise(
        what.starts_with("a.json:") && end > 7 && what.find_first_not_of("0123456789", 7) == end,
        "an error begins with the file and the line", what);
    promise(std::none_of(what.begin(), what.end(),
                         [](char letter) { return static_cast<unsigned char>(letter) < ' '; }),
            "an error is one line", what);
    promise(what.size() < 1000, "an error is short", what);
  }
}

}  // namespace

void judge(std::span<const std::uint8_t> input) {
  const std::string_view text = text_of(input);
  judge_reading([&] {
    const tune::Tuning tuning = tune::parse_tuning(text, "a.json");
    const std::string again = tune::text_of(tuning);
    promise(tune::parse_tuning(again, "a.json") == tuning, "what is written is read", again);
  });
  judge_reading([&] {
    const tune::Finding finding = tune::parse_finding(text, "a.json", 7);
    const std::string again = tune::line_of(finding);
    promise(tune::parse_finding(again, "a.json", 7) == finding, "a line is read again", again);
  });
}

std::vector<std::string> seeds() {
  std::vector<std::string> all{test::tuning_example};
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    test::RandomTuning tunings(seed);
    const tune::Tuning tuning = tunings.tuning();
    all.push_back(tune::text_of(tuning));
    if (!tuning.findings.empty()) all.push_back(tune::line_of(tuning.findings[0]));
  }
  return all;
}

}  // namespace tutti::fuzz
