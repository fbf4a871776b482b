#include "microbench/tune_explain.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include "microbench/tune_journal.hpp"
#include "microbench/tune_report.hpp"
#include "microbench/tune_show.hpp"
#include "runtime/communicator.hpp"
#include "runtime/file_change.hpp"
#include "runtime/settings.hpp"
#include "runtime/tuning_table.hpp"
#include "tune/choose.hpp"
#include "tune/flips.hpp"
#include "tune/tuning_file.hpp"

namespace tutti::bench {
namespace {

struct Source {
  tune::Knowledge knowledge;
  std::string text;    // where the knowledge is from
  std::string remark;  // a line on its source; empty: none
};

/// What programs with this environment know by the file on the machine where it was made.
tune::Knowledge knowledge_of(tune::Tuning tuning) {
  const bool keeps_bits = runtime::context_settings({}).tuning_keeps_bits;
  const tune::Machine fallback =
      tune::machine_of_link(tuning.made_on.link == "Ethernet", tuning.made_on.gigabits_per_second);
  return tune::tuned(fallback, std::move(tuning),
                     keeps_bits ? tune::TuningBits::keep : tune::TuningBits::free);
}

/// What programs say if the file was made on another machine.  Empty if it was not, or if there is
/// no device here to compare with.
std::string remark_on_machine(const tune::Fingerprint& made_on) {
  tune::Fingerprint here;
  try {
    Context context({.tuning = TuningMode::off});
    const Context::Implementation& implementation = context.implementation();
    here = runtime::fingerprint_of(implementation.fabric.port(), implementation.settings);
  } catch (const Error&) {
    return {};
  }
  const tune::Applicability found = tune::applicability(made_on, here);
  switch (found.applies) {
    case tune::Applies::yes:
      break;
    case tune::Applies::no:
      return fmt::format("Note: {}; programs on this machine do without it\n", found.why);
    case tune::Applies::stale:
      return fmt::format("Note: {}\n", found.why);
  }
  return {};
}

/// Takes --file or --fabric, else the file that programs find, and without one a preset.
Source source_of(const TuneOptions& options) {
  if (!options.fabric.empty())
    return {tune::untuned(tune::machine_preset(options.fabric)), "preset " + options.fabric, {}};
  const bool is_there =
      !options.is_default_file || (!options.file.empty() && text_of_file(options.file));
  if (!is_there)
    return {tune::untuned(tune::machine_preset("fdr")),
            "preset fdr, as there is no tuning file " + options.file,
            {}};
  tune::Tuning tuning = read_tuning(options.file);
  std::string remark = remark_on_machine(tuning.made_on);
  Source source{knowledge_of(std::move(tuning)), "file " + options.file, std::move(remark)};
  if (source.knowledge.bits == tune::TuningBits::keep)
    source.text += ", which changes no bits of results (TUTTI_TUNING_BITS=keep)";
  return source;
}

}  // namespace

tune::Tuning read_tuning(const std::string& file) {
  const std::optional<std::string> text = text_of_file(file);
  if (!text)
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("{}: there is no such file; give a tuning file, as tutti-tune writes it",
                    file));
  return tune::parse_tuning(*text, file);
}

tune::Knowledge knowledge_of_file(const std::string& file) {
  return knowledge_of(read_tuning(file));
}

std::string explained(const TuneOptions& options) {
  const Source source = source_of(options);
  const PlanRequest& asked = options.explained;
  tune::CollectiveRequest request = asked.asked;
  request.ring_room = ring_room_of(asked);
  std::string text = fmt::format("by {}\n", source.text) + source.remark +
                     tune::choose(request, asked.topology, source.knowledge).explanation();
  if (text.back() != '\n') text += '\n';
  const std::string flips = tune::what_would_flip(request, asked.topology, source.knowledge);
  text += flips.empty() ? "What would flip it: no parameter of the network within a factor of 8.\n"
                        : "What would flip it:\n" + flips;
  if (text.back() != '\n') text += '\n';
  return text;
}

std::string compared(const std::string& file, const std::string& other) {
  const tune::Tuning left = read_tuning(file), right = read_tuning(other);
  return show_difference({file, left}, {other, right});
}

namespace {

/// Throws unless a page may be written there.
void require_page(const std::string& page_file, const std::string& tuning_file) {
  constexpr const char* remedy = "name another file for the page: --report FILE.html";
  struct stat page {
  }, tuning{};
  if (::stat(page_file.c_str(), &page) != 0) return;
  if (::stat(tuning_file.c_str(), &tuning) == 0 && page.st_ino == tuning.st_ino &&
      page.st_dev == tuning.st_dev)
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("--report=\"{}\": it is the tuning file itself; {}", page_file, remedy));
  const bool is_tuning = [&] {
    try {
      (void)read_tuning(page_file);
      return true;
    } catch (const Error&) {
      return false;
    }
  }();
  if (is_tuning)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--report=\"{}\": it is a tuning file, and would be lost; {}; the file "
                            "that is read is --file",
                            page_file, remedy));
}

}  // namespace

void write_report(const std::string& page_file, const std::string& tuning_file) {
  require_page(page_file, tuning_file);
  runtime::replace_file(page_file, reported(tuning_file),
                        "give a file for the page that can be written: --report FILE.html");
}

std::string reported(const std::string& file) {
  const tune::Tuning tuning = read_tuning(file);
  const tune::Knowledge knowledge = knowledge_of(tuning);
  return report_page(tuning, file,
                     [&](const tune::CollectiveRequest& request, const tune::Topology& topology) {
                       return tune::choose(request, topology, knowledge);
                     });
}

}  // namespace tutti::bench
