// What tutti finds on this machine, gathered before it is printed.
#pragma once

#include <optional>
#include <string>
#include <tutti/status.hpp>
#include <utility>
#include <vector>

namespace tutti::bench {

struct InfoSection {
  std::string title;
  std::vector<std::pair<std::string, std::string>> lines;  // label, text
  std::vector<InfoSection> parts = {};
};

struct Info {
  std::vector<InfoSection> sections;
  std::optional<Error> problem = {};  // why a context could not be made; the rest is there
};

/// Gathers devices and ports, the choice, limits, nodes, processors and settings.  Throws Error
/// where a TUTTI_* variable is wrong: then nothing can be said about the choice.
Info gather_info();

/// The sections as text for people, in 100 columns where words allow it.
std::string text_of(const std::vector<InfoSection>& sections);

/// The table of TUTTI_* variables.  `format` is table, json or markdown, which is the whole of
/// docs/settings.md.  Throws Error{invalid_argument} for another one.
std::string settings_text(const std::string& format);

}  // namespace tutti::bench
