// tutti-info: devices, limits, processors and settings as tutti sees them, and what it would
// choose.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <tutti/status.hpp>

#include "microbench/info.hpp"
#include "microbench/launch.hpp"

namespace tutti::bench {
namespace {

constexpr const char* program = "tutti-info";

std::string as_text(const std::vector<InfoSection>& sections) {
  std::string text;
  for (const InfoSection& section : sections) {
    std::size_t width = 0;
    for (const auto& [label, value] : section.lines) width = std::max(width, label.size());
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n", section.title);
    for (const auto& [label, value] : section.lines)
      text += fmt::format("  {:<{}}  {}\n", label, width, value);
  }
  return text;
}

std::string as_json(const std::vector<InfoSection>& sections) {
  nlohmann::ordered_json json;
  for (const InfoSection& section : sections)
    for (const auto& [label, value] : section.lines) json[section.title][label] = value;
  return json.dump(2) + '\n';
}

int run_program(int argument_count, char** arguments) {
  std::string format = "table";
  CLI::App app("What tutti finds on this machine, and what it would choose.", program);
  app.add_option("--format", format, "table or json");
  try {
    app.parse(argument_count, arguments);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}; see tutti-info --help", error.what()));
  }
  if (format != "table" && format != "json")
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--format=\"{}\": expected table or json", format));
  const std::vector<InfoSection> sections = gather_info();
  const std::string text = format == "json" ? as_json(sections) : as_text(sections);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace tutti::bench

int main(int argument_count, char** arguments) {
  using namespace tutti::bench;
  try {
    return run_program(argument_count, arguments);
  } catch (const tutti::Error& error) {
    print_reason(program, error.what());
    return exit_status_of(error.code());
  } catch (const std::exception& error) {
    print_reason(program, error.what());
    return exit_failure;
  }
}
