#include "devices.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "verbs/connection_request.hpp"

namespace tutti::test {
namespace {

std::vector<std::string> suited;

std::vector<std::string> devices_asked_for() {
  std::vector<std::string> names;
  const char* const given = std::getenv("DEVICES_UNDER_TEST");
  std::istringstream list(given ? given : "");
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  return names;
}

bool is_asked_for(const verbs::PortDescription& port, const std::vector<std::string>& asked) {
  const std::string name = port.device + ":" + std::to_string(port.port);
  return asked.empty() || std::find(asked.begin(), asked.end(), name) != asked.end() ||
         std::find(asked.begin(), asked.end(), port.device) != asked.end();
}

/// One line per port: "+name:port", or "-why not".
std::string survey(const std::vector<std::string>& asked) {
  std::string lines;
  for (const verbs::PortDescription& port : verbs::list_ports()) {
    const std::string name = port.device + ":" + std::to_string(port.port);
    if (!is_asked_for(port, asked)) continue;
    if (const std::string unusable = verbs::obstacle_of(port); !unusable.empty()) {
      lines += "-" + name + ": " + unusable + "\n";
      continue;
    }
    const std::string obstacle = verbs::obstacle_to_address(port, *port.gids.chosen);
    lines += obstacle.empty() ? "+" + name + "\n" : "-" + name + " is " + obstacle + "\n";
  }
  return lines;
}

/// In a process of its own: the library may have no state where ranks are forked later.
std::string survey_elsewhere(const std::vector<std::string>& asked) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    const std::string lines = survey(asked);
    const ssize_t written = write(ends[1], lines.data(), lines.size());
    _exit(written == static_cast<ssize_t>(lines.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string lines;
  char buffer[4096];
  for (ssize_t count; (count = read(ends[0], buffer, sizeof buffer)) > 0;)
    lines.append(buffer, static_cast<std::size_t>(count));
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return lines;
}

}  // namespace

const std::vector<std::string>& devices() {
  return suited;
}

}  // namespace tutti::test

int main(int count, char** values) {
  using namespace tutti::test;
  testing::InitGoogleTest(&count, values);
  if (count > 1) {
    std::fprintf(stderr, "%s: expected no argument; DEVICES_UNDER_TEST names devices\n", values[1]);
    return 2;
  }
  // Which ports are on one network only the user knows.
  const bool first_alone = devices_asked_for().empty();
  std::string why_not;
  std::istringstream lines(survey_elsewhere(devices_asked_for()));
  for (std::string line; std::getline(lines, line);) {
    if (line[0] == '+' && first_alone && !suited.empty()) continue;
    if (line[0] == '+')
      suited.push_back(line.substr(1));
    else
      why_not += (why_not.empty() ? "" : "; ") + line.substr(1);
  }
  if (suited.empty()) {
    std::printf("skipped: no device can be connected by address: %s\n",
                why_not.empty() ? "there is none of that name" : why_not.c_str());
    return 77;
  }
  return RUN_ALL_TESTS();
}
