// tutti-info: devices, limits, processors and settings as tutti sees them, and what it would
// choose; the plan of any collective, and the table of settings, which need no device; what a
// process that may hang is doing.
#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <tutti/status.hpp>

#include "microbench/attach.hpp"
#include "microbench/command_line.hpp"
#include "microbench/info.hpp"
#include "microbench/launch.hpp"
#include "microbench/plan_print.hpp"
#include "microbench/words.hpp"

namespace tutti::bench {
namespace {

constexpr const char* program = "tutti-info";

nlohmann::ordered_json json_of(const InfoSection& section) {
  nlohmann::ordered_json json;
  for (const auto& [label, value] : section.lines) json[label] = value;
  for (const InfoSection& part : section.parts) json[part.title] = json_of(part);
  return json;
}

std::string as_json(const Info& info) {
  nlohmann::ordered_json json;
  for (const InfoSection& section : info.sections) json[section.title] = json_of(section);
  if (info.problem) json["error"] = info.problem->what();
  return json.dump(2) + '\n';
}

int print_machine(const std::string& format) {
  if (format != "table" && format != "json")
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--format=\"{}\": expected table or json", format));
  const Info info = gather_info();
  const std::string text = format == "json" ? as_json(info) : text_of(info.sections);
  std::fputs(text.c_str(), stdout);
  if (!info.problem) return 0;
  std::fflush(stdout);
  print_reason(program, info.problem->what());
  return exit_failure;
}

int print_settings(const std::string& format) {
  const std::string text = settings_text(format);
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return 0;
  print_reason(program, "settings: standard output could not be written");
  return exit_failure;
}

int run_plan(const PlanWords& words) {
  print_plan(understand(words), std::cout);
  std::cout.flush();
  if (std::cout) return 0;
  print_reason(program, "plan: standard output could not be written");
  return exit_failure;
}

int run_program(std::span<const char* const> arguments) {
  std::string format = "table", settings_format = "table";
  PlanWords words;
  CommandLine line(
      program,
      "Prints what tutti finds on this machine, what it would choose, and why.  The CPUs on which\n"
      "it runs matter: bind it as a rank is bound (taskset -c CPUS tutti-info).  Exit status 1: a\n"
      "context could not be made here; the rest is printed all the same.");
  line.add("--format", format, "table or json");
  CommandLine& plan = line.add_command(
      "plan",
      "Prints the plan of a collective: who sends what to whom, in which round.  Needs no device.\n"
      "For example: tutti-info plan --ranks 7 --algorithm two_partial_dissemination");
  declare_plan_options(plan, words);
  CommandLine& settings = line.add_command(
      "settings", "Prints every TUTTI_* variable: its values, its default, and what it decides.");
  settings.add("--format", settings_format, "table, json or markdown (docs/settings.md)");
  std::string process, attach_format = "table";
  CommandLine& attaching = line.add_command("attach",
                                            "Prints what the operations of a process are doing, "
                                            "which may hang: their calls, rounds, and\n"
                                            "whom they wait for.  It need not know of it.");
  attaching.add("PID", process, "id of a process of this user, on this host");
  attaching.add("--format", attach_format, "table or json");
  if (const std::optional<std::string> help = line.parse(arguments)) {
    std::fputs(help->c_str(), stdout);
    return 0;
  }
  if (!plan.is_given() && !settings.is_given() && !attaching.is_given())
    return print_machine(format);
  const char* const command = plan.is_given()       ? "plan"
                              : settings.is_given() ? "settings"
                                                    : "attach";
  if (line.is_given("--format"))
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--format=\"{0}\" before {1}: expected after it; use tutti-info {1} "
                            "--format {0}",
                            format, command));
  if (attaching.is_given()) {
    std::fputs(attach(process, attach_format).c_str(), stdout);
    return 0;
  }
  return plan.is_given() ? run_plan(words) : print_settings(settings_format);
}

}  // namespace
}  // namespace tutti::bench

int main(int argument_count, char** arguments) {
  using namespace tutti::bench;
  return exit_status_of(program, [&] {
    return run_program({arguments, static_cast<std::size_t>(argument_count)});
  });
}
