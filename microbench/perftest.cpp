#include "microbench/perftest.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <tutti/detail/clock.hpp>
#include <tutti/detail/descriptor.hpp>

#include "microbench/statistics.hpp"
#include "microbench/subject.hpp"
#include "microbench/together.hpp"

extern char** environ;

namespace tutti::bench {
namespace {

using namespace std::chrono_literals;

constexpr Timeout tool_timeout = 40s;  // less than other ranks wait for these
constexpr Timeout listen_timeout = 10s;

bool is_installed(const std::string& tool) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (::access((folder + "/" + tool).c_str(), X_OK) == 0) return true;
  return false;
}

/// Where a build has the software device for other programs.
std::string softverbs_library() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const auto library = program.parent_path().parent_path() / "lib/softverbs-shim/libibverbs.so.1";
  return ::access(library.c_str(), R_OK) == 0 ? library.string() : std::string();
}

/// A port that nothing has at the moment.
std::uint16_t free_port() {
  const detail::Descriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t bytes = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (socket.get() < 0 || ::bind(socket.get(), any, bytes) != 0 ||
      ::getsockname(socket.get(), any, &bytes) != 0)
    return 0;
  return ntohs(address.sin_port);
}

/// Whether a socket of this host listens on that port.
bool is_listened_on(std::uint16_t port) {
  const std::string end = fmt::format(":{:04X}", port);
  for (const char* const name : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream table(name);
    for (std::string line; std::getline(table, line);) {
      std::istringstream words(line);
      std::string slot, local, remote, state;
      words >> slot >> local >> remote >> state;
      if (local.ends_with(end) && state == "0A") return true;
    }
  }
  return false;
}

void sleep_for(Timeout time) {
  const timespec wanted{.tv_sec = 0, .tv_nsec = time.count()};
  ::nanosleep(&wanted, nullptr);
}

/// A process of this one, which ends with this object at the latest.
class Child {
 public:
  Child() = default;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }

  /// Returns 0 or an errno.
  int start(const std::vector<std::string>& command, const std::string& preload, int output) {
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    std::vector<std::string> added;
    if (!preload.empty())
      // Its buffers become files that both processes map, as the memory of tutti-bench is.
      added = {"LD_PRELOAD=" + preload, "TUTTI_SOFT_PROMOTE=1", "MALLOC_MMAP_THRESHOLD_=1"};
    std::vector<char*> variables;
    for (std::string& one : added) variables.push_back(one.data());
    for (char** variable = environ; *variable != nullptr; ++variable)
      variables.push_back(*variable);
    variables.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (output < 0) {
      posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
      posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    } else {
      posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
      posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    }
    const int error = ::posix_spawnp(&process_, arguments[0], &actions, nullptr, arguments.data(),
                                     variables.data());
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) process_ = 0;
    return error;
  }

  bool has_ended() {
    if (process_ <= 0) return true;
    int status = 0;
    if (::waitpid(process_, &status, WNOHANG) == 0) return false;
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    process_ = 0;
    return true;
  }
  /// Waits until it has ended; true if that was in time and in good order.
  bool ends_well(Timeout timeout) {
    const Timeout end = detail::MonotonicClock::read() + timeout;
    while (!has_ended()) {
      if (detail::MonotonicClock::read() > end) return false;
      sleep_for(5ms);
    }
    return status_ == 0;
  }

 private:
  pid_t process_ = 0;
  int status_ = -1;
};

/// What comes out of a pipe until its end, or until the time is over.
std::string read_all(int descriptor, Timeout timeout) {
  const Timeout end = detail::MonotonicClock::read() + timeout;
  std::string text;
  for (;;) {
    const Timeout left = end - detail::MonotonicClock::read();
    if (left <= Timeout::zero()) return text;
    pollfd wanted{.fd = descriptor, .events = POLLIN, .revents = 0};
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count();
    if (::poll(&wanted, 1, static_cast<int>(ms) + 1) <= 0) continue;
    char part[4096];
    const ssize_t count = ::read(descriptor, part, sizeof part);
    if (count <= 0) return text;
    text.append(part, static_cast<std::size_t>(count));
  }
}

struct HostName {
  char text[256] = {};
};

}  // namespace

std::vector<double> last_line_of_numbers(const std::string& text) {
  std::vector<double> last;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<double> numbers;
    double value = 0;
    while (words >> value) numbers.push_back(value);
    words.clear();
    std::string rest;
    words >> rest;
    if (rest.empty() && numbers.size() > 1) last = numbers;
  }
  return last;
}

Perftest::Perftest(Exchange& exchange, Rank client, Rank server, bool is_one_machine,
                   const verbs::Port& port)
    : exchange_(exchange),
      is_client_(exchange.self() == client),
      is_server_(exchange.self() == server),
      server_(server),
      is_one_machine_(is_one_machine),
      device_(port.description.device),
      port_arguments_{"-d", port.description.device, "-i", fmt::format("{}", port.description.port),
                      "-F"} {
  if (port.description.link == verbs::LinkLayer::ethernet) {
    port_arguments_.emplace_back("-x");
    port_arguments_.push_back(fmt::format("{}", port.gid.index));
  }
  enum class Missing : std::uint8_t { nothing, tools, device };
  Missing missing = Missing::nothing;
  if (is_client_ || is_server_) {
    if (!is_installed("ib_write_bw") || !is_installed("ib_write_lat"))
      missing = Missing::tools;
    else if (port.description.is_software() && (preload_ = softverbs_library()).empty())
      missing = Missing::device;
  }
  const std::vector<Missing> all = gather(exchange, missing);
  for (std::size_t rank = 0; rank < all.size() && obstacle_.empty(); ++rank) {
    if (all[rank] == Missing::tools)
      obstacle_ = fmt::format(
          "nothing beside perftest: ib_write_bw and ib_write_lat are not installed on the host of "
          "rank {} (the package is called perftest)",
          rank);
    if (all[rank] == Missing::device)
      obstacle_ = fmt::format(
          "nothing beside perftest: rank {} finds no software device for other programs, "
          "lib/softverbs-shim beside the folder of tutti-bench (scripts/softverbs --help)",
          rank);
  }
}

double Perftest::run(const PerftestCommand& command) {
  constexpr int tries_max = 3;
  std::string said;
  for (int tries = 0; tries < tries_max; ++tries)
    if (const std::optional<double> figure = try_once(command, said)) return *figure;
  throw RunFailed(fmt::format("perftest: {} has failed {} times: {}", command.tool, tries_max,
                              said.empty() ? "see rank 0" : said));
}

std::optional<double> Perftest::try_once(const PerftestCommand& command, std::string& said) {
  struct Offer {
    std::uint16_t port = 0;
    HostName host = {};
  };
  Offer offer;
  Child child;
  std::vector<std::string> words = {command.tool};
  words.insert(words.end(), command.arguments.begin(), command.arguments.end());
  words.insert(words.end(), port_arguments_.begin(), port_arguments_.end());
  if (is_server_) {
    offer.port = free_port();
    ::gethostname(offer.host.text, sizeof offer.host.text - 1);
    std::vector<std::string> server = words;
    server.insert(server.end(), {"-p", fmt::format("{}", offer.port)});
    const Timeout end = detail::MonotonicClock::read() + listen_timeout;
    if (child.start(server, preload_, -1) != 0) offer.port = 0;
    while (offer.port != 0 && !is_listened_on(offer.port)) {
      if (child.has_ended() || detail::MonotonicClock::read() > end) offer.port = 0;
      sleep_for(5ms);
    }
  }
  const Offer given = gather(exchange_, offer)[index_of(server_)];
  double figure = -1;
  if (is_client_ && given.port == 0) said = "its server does not start";
  if (is_client_ && given.port != 0) {
    words.insert(words.end(), {"-p", fmt::format("{}", given.port),
                               is_one_machine_ ? "127.0.0.1" : given.host.text});
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) != 0) throw RunFailed("perftest: no pipe could be had");
    const detail::Descriptor out(ends[0]);
    detail::Descriptor in(ends[1]);
    const int error = child.start(words, preload_, in.get());
    in = detail::Descriptor();
    said = error == 0 ? read_all(out.get(), tool_timeout) : std::strerror(error);
    const std::vector<double> numbers = last_line_of_numbers(said);
    if (error == 0 && child.ends_well(5s) && numbers.size() > command.column)
      figure = numbers[command.column] * command.scale;
  }
  const double found = largest(gather(exchange_, figure));
  if (is_server_ && found >= 0) (void)child.ends_well(5s);
  if (found < 0) return {};
  return found;
}

}  // namespace tutti::bench
