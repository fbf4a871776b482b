#include "runtime/settings.hpp"

#include <signal.h>

#include <unistd.h>

#include <charconv>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tutti/bootstrap.hpp>
#include <tutti/communicator.hpp>
#include <tutti/detail/clock.hpp>
#include <tutti/detail/names.hpp>
#include <tutti/detail/number_in.hpp>
#include <tutti/status.hpp>
#include <utility>
#include <vector>

#include "bootstrap/secret.hpp"
#include "runtime/trace.hpp"

namespace tutti {
namespace {

[[noreturn]] void refuse(const std::string& origin, std::string_view value,
                         const std::string& expected) {
  throw Error(ErrorCode::invalid_argument,
              origin + "=\"" + std::string(value) + "\": expected " + expected);
}

std::optional<std::string> value_of(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

std::string required(const char* name, const char* expected) {
  if (auto value = value_of(name)) return *value;
  throw Error(ErrorCode::invalid_argument,
              std::string(name) + " is not set: the tcp bootstrap needs " + expected);
}

std::uint32_t parse_number(std::string_view text, const std::string& origin, const char* expected) {
  if (const auto number = detail::number_in<std::uint32_t>(text)) return *number;
  refuse(origin, text, expected);
}

Timeout parse_seconds(std::string_view text, const std::string& origin) {
  const double seconds = detail::number_in<double>(text).value_or(0);
  if (!(seconds >= 1e-9) || seconds > 1e6)
    refuse(origin, text, "seconds from 1e-9 to 1e6, for example 30 or 0.5");
  return std::chrono::duration_cast<Timeout>(std::chrono::duration<double>(seconds));
}

/// Less than 10 ms would take a system call each millisecond, and more than an hour is a mistake.
constexpr Timeout detection_bound_min = std::chrono::milliseconds(10);
constexpr Timeout detection_bound_max = std::chrono::hours(1);

Timeout parse_detection_bound(std::string_view text, const std::string& origin) {
  const std::chrono::duration<double> bound(detail::number_in<double>(text).value_or(0));
  if (!(bound >= detection_bound_min && bound <= detection_bound_max))
    refuse(origin, text, "seconds from 0.01 to 3600, for example 1");
  return std::chrono::duration_cast<Timeout>(bound);
}

/// A parser of a setting that is one of a few words; `expected` lists them.
template <class Value>
auto one_of(std::vector<std::pair<std::string_view, Value>> words, const char* expected) {
  return [words = std::move(words), expected](std::string_view text, const std::string& origin) {
    for (const auto& [word, value] : words)
      if (text == word) return value;
    refuse(origin, text, expected);
  };
}

/// Parses the name of an enumerator up to `last`.
template <auto last>
decltype(last) parse_name(std::string_view text, const std::string& origin) {
  std::string names;
  for (const auto value : detail::enumerators<last>) {
    if (text == name_of(value)) return value;
    names += (names.empty() ? "" : value == last ? " or " : ", ") + std::string(name_of(value));
  }
  refuse(origin, text, names);
}

/// "USR1" or "SIGUSR1".
int parse_signal(std::string_view text, const std::string& origin) {
  const std::string_view name = text.starts_with("SIG") ? text.substr(3) : text;
  for (int signal = 1; signal < SIGRTMIN; ++signal) {
    const char* const known = ::sigabbrev_np(signal);
    if (known != nullptr && name == known) return signal;
  }
  refuse(origin, text, "the name of a signal, such as USR1");
}

/// Whether a program may wait for it, and go on when it has come.
bool may_be_handled(int signal) noexcept {
  switch (signal) {
    case SIGKILL:
    case SIGSTOP:
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGABRT:
      return false;
    default:
      return signal >= 0 && signal <= SIGRTMAX;
  }
}

}  // namespace

namespace runtime {

SharedNotificationsChoice choose_shared_notifications(SharedNotifications asked,
                                                      bool promises_order,
                                                      bool time_is_simulated) noexcept {
  if (asked != SharedNotifications::automatic) return {asked, "asked for"};
  if (!promises_order)
    return {SharedNotifications::republished,
            "the device does not promise to place writes in order"};
  if (time_is_simulated)
    return {SharedNotifications::republished, "only messages let simulated time pass"};
  return {SharedNotifications::words, "the device places writes in order"};
}

void refuse_unknown_settings() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with("TUTTI_")) continue;
    const std::string_view name = text.substr(0, text.find('='));
    std::string valid;
    bool known = false;
    for (const Setting& setting : settings()) {
      known = known || name == setting.name;
      valid += (valid.empty() ? "" : ", ") + std::string(setting.name);
    }
    if (!known)
      throw Error(ErrorCode::invalid_argument, "unknown environment variable " + std::string(name) +
                                                   "; unset it, or use one of " + valid);
  }
}

namespace {

/// Positive numbers between commas.
std::vector<std::uint32_t> parse_list(std::string_view text, const std::string& origin,
                                      const char* expected) {
  std::vector<std::uint32_t> vector;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    const std::uint32_t entry = detail::number_in<std::uint32_t>(word).value_or(0);
    if (entry == 0) refuse(origin, text, expected);
    vector.push_back(entry);
    if (comma == std::string_view::npos) return vector;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace

std::vector<std::uint32_t> parse_per_round(std::string_view text, const std::string& origin) {
  return parse_list(text, origin, "messages per round, each 1 or more, for example 3,2,1");
}

std::vector<std::uint32_t> parse_ranks_per_node(std::string_view text, const std::string& origin) {
  return parse_list(text, origin, "ranks of each node, each 1 or more, for example 2 or 3,1,2");
}

std::vector<std::uint32_t> parse_ranks_per_domain(std::string_view text,
                                                  const std::string& origin) {
  return parse_list(text, origin,
                    "ranks of each domain of a node, each 1 or more, for example 2 or 3,1,2");
}

Placement parse_placement(std::string_view text, const std::string& origin) {
  return parse_name<Placement::random>(text, origin);
}

std::uint64_t parse_bytes(std::string_view text, const std::string& origin) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  unsigned shift = 0;
  if (unit == "K" || unit == "k") shift = 10;
  if (unit == "M" || unit == "m") shift = 20;
  if (unit == "G" || unit == "g") shift = 30;
  if (error != std::errc() || (shift == 0 && !unit.empty()) || number > UINT64_MAX >> shift)
    refuse(origin, text, "bytes, for example 8, 64K or 16M");
  return number << shift;
}

std::optional<std::size_t> parse_single_copy(std::string_view text, const std::string& origin) {
  if (text == "measured") return std::nullopt;
  if (text == "never") return SIZE_MAX;
  try {
    return parse_bytes(text, origin);
  } catch (const Error&) {
    refuse(origin, text, "bytes, for example 4K, measured or never");
  }
}

namespace {

std::size_t parse_domains_above(std::string_view text, const std::string& origin) {
  return text == "never"
             ? SIZE_MAX
             : parse_number(text, origin, "a number of ranks, for example 16, or never");
}

std::string parse_path(std::string_view text, const std::string& origin) {
  if (text.empty())
    refuse(origin, text, "the path of a file, in which %r stands for the rank; unset it for none");
  return std::string(text);
}

std::size_t parse_trace_bytes(std::string_view text, const std::string& origin) {
  const std::uint64_t bytes = parse_bytes(text, origin);
  if (bytes < trace_bytes_min || bytes > trace_bytes_max)
    refuse(origin, text, "from 4K to 64G, for example 16M");
  return bytes;
}

/// What the code gives goes before the environment, which is read, and refused, in any case.
template <class Setting, class Given, class Parse>
void settle(Setting& setting, const std::optional<Given>& given, const char* variable,
            Parse&& parse) {
  if (const auto text = value_of(variable)) setting = parse(*text, variable);
  if (given) setting = *given;
}

}  // namespace

ContextSettings context_settings(const ContextOptions& given) {
  refuse_unknown_settings();
  ContextSettings settings;
  settings.device = given.device.empty() ? value_of("TUTTI_DEVICE").value_or("") : given.device;
  settle(settings.arena_bytes, given.arena_bytes, "TUTTI_ARENA_BYTES", parse_bytes);
  if (settings.arena_bytes > arena_bytes_max)
    refuse("TUTTI_ARENA_BYTES", std::to_string(settings.arena_bytes),
           "at most " + std::to_string(arena_bytes_max) +
               " bytes, also in code, and less than there is memory");
  settle(settings.connections_max, given.connections_max, "TUTTI_CONNECTIONS_MAX",
         [](std::string_view text, const std::string& origin) {
           return parse_number(text, origin,
                               "a number of connections, or 0 for no other limit than "
                               "the device's");
         });
  settle(settings.check, given.check, "TUTTI_CHECK", parse_name<CheckLevel::collective>);
  settle(settings.per_round, given.per_round, "TUTTI_PER_ROUND", parse_per_round);
  settle(settings.chunk_bytes, given.chunk_bytes, "TUTTI_CHUNK_BYTES", parse_bytes);
  settle(settings.single_copy_bytes, given.single_copy_bytes, "TUTTI_SINGLE_COPY_BYTES",
         parse_single_copy);
  settle(settings.register_buffers, given.register_buffers, "TUTTI_REGISTER_BUFFERS",
         one_of<bool>({{"0", false}, {"1", true}}, "0 or 1"));
  settle(settings.setup_timeout, given.setup_timeout, "TUTTI_SETUP_TIMEOUT", parse_seconds);
  settle(settings.detection_bound, given.detection_bound, "TUTTI_DETECTION_BOUND",
         parse_detection_bound);
  if (settings.detection_bound < detection_bound_min ||
      settings.detection_bound > detection_bound_max)
    refuse("detection_bound", std::to_string(settings.detection_bound.count()) + " ns",
           "10 ms to an hour");
  settle(settings.shrinkable, given.shrinkable, "TUTTI_SHRINKABLE",
         one_of<bool>({{"0", false}, {"1", true}}, "0 or 1"));
  settle(settings.connect, given.connect, "TUTTI_CONNECT",
         one_of<ConnectBy>({{"exchange", ConnectBy::exchange}, {"cm", ConnectBy::cm}},
                           "exchange (out of band) or cm (by IP address, through the kernel's "
                           "rdma_cm)"));
  settle(settings.notify, given.notify, "TUTTI_NOTIFY", parse_name<Notify::flag>);
  settle(settings.wait, given.wait, "TUTTI_WAIT", parse_name<WaitPolicy::block>);
  settle(settings.shared_notifications, given.shared_notifications, "TUTTI_SHARED_NOTIFICATIONS",
         parse_name<SharedNotifications::republished>);
  settle(settings.ranks_per_node, given.ranks_per_node, "TUTTI_RANKS_PER_NODE",
         parse_ranks_per_node);
  settle(settings.placement, given.placement, "TUTTI_PLACEMENT", parse_placement);
  settle(settings.domains_above, given.domains_above, "TUTTI_DOMAINS_ABOVE", parse_domains_above);
  settle(settings.ranks_per_domain, given.ranks_per_domain, "TUTTI_RANKS_PER_DOMAIN",
         parse_ranks_per_domain);
  for (const std::uint32_t ranks : settings.ranks_per_domain)
    if (ranks == 0) refuse("ranks_per_domain", "0", "1 or more ranks in each domain");
  for (const std::uint32_t ranks : settings.ranks_per_node)
    if (ranks == 0) refuse("ranks_per_node", "0", "1 or more ranks on each node");
  if (settings.ranks_per_node.empty() && (given.placement || value_of("TUTTI_PLACEMENT")))
    throw Error(ErrorCode::invalid_argument,
                "TUTTI_PLACEMENT (or placement in code): expected TUTTI_RANKS_PER_NODE beside it; "
                "nodes that are found are as they are");
  settings.tuning_file =
      given.tuning_file.empty() ? value_of("TUTTI_TUNING_FILE").value_or("") : given.tuning_file;
  settle(settings.tuning, given.tuning, "TUTTI_TUNING", parse_name<TuningMode::off>);
  settle(settings.tuning_keeps_bits, given.tuning_keeps_bits, "TUTTI_TUNING_BITS",
         one_of<bool>({{"free", false}, {"keep", true}},
                      "free, or keep (results have the bits that they have without a file)"));
  settle(settings.tuning_appends, given.tuning_appends, "TUTTI_TUNING_APPEND",
         one_of<bool>({{"0", false}, {"1", true}}, "0 or 1"));
  settle(settings.report_signal, given.report_signal, "TUTTI_REPORT_SIGNAL", parse_signal);
  if (!may_be_handled(settings.report_signal))
    refuse("TUTTI_REPORT_SIGNAL (or report_signal in code)", std::to_string(settings.report_signal),
           "a signal after which a program goes on, such as USR1");
  constexpr std::nullopt_t not_in_code = std::nullopt;
  settle(settings.stragglers, std::optional<bool>(not_in_code), "TUTTI_STRAGGLERS",
         one_of<bool>({{"0", false}, {"1", true}}, "0 or 1"));
  settle(settings.trace_file, std::optional<std::string>(not_in_code), "TUTTI_TRACE", parse_path);
  settle(settings.trace_bytes, std::optional<std::size_t>(not_in_code), "TUTTI_TRACE_BYTES",
         parse_trace_bytes);
  settle(settings.trace_samples, std::optional<bool>(not_in_code), "TUTTI_TRACE_SHORT_CALLS",
         one_of<bool>({{"sampled", true}, {"all", false}}, "sampled or all"));
  // Whoever emulates a network wants messages to travel through it.
  const std::optional<std::string> fabric = value_of("TUTTI_SOFT_FABRIC");
  if (settings.ranks_per_node.empty() && fabric) settings.ranks_per_node = {1};
  settings.emulated_fabric = fabric.value_or("");
  return settings;
}

}  // namespace runtime

namespace {

/// What a descriptor had, which cannot be read twice, for whoever asks again.
std::string secret_of_descriptor(const std::string& text, Deadline deadline) {
  static std::mutex mutex;
  static std::map<int, std::string> known;
  const auto descriptor = detail::number_in<std::uint32_t>(text);
  if (!descriptor || *descriptor > INT_MAX)
    refuse("TUTTI_SECRET_FD", text, "the number of an open descriptor, for example 3");
  const std::lock_guard lock(mutex);
  const auto number = static_cast<int>(*descriptor);
  if (const auto found = known.find(number); found != known.end()) return found->second;
  return known[number] =
             bootstrap::secret_from_descriptor(number, "TUTTI_SECRET_FD=" + text, deadline);
}

/// The variable stays: to remove it would race with whoever reads the environment in another
/// thread, take it from children and from a second communicator, and leave it in
/// /proc/PID/environ.
std::string secret_of_environment(Deadline deadline) {
  const auto text = value_of("TUTTI_SECRET"), file = value_of("TUTTI_SECRET_FILE"),
             descriptor = value_of("TUTTI_SECRET_FD");
  if (text.has_value() + file.has_value() + descriptor.has_value() > 1)
    throw Error(ErrorCode::invalid_argument,
                "expected one of TUTTI_SECRET, TUTTI_SECRET_FILE and TUTTI_SECRET_FD, but several "
                "are set; unset all but one");
  if (file)
    return bootstrap::secret_in_file(*file, "TUTTI_SECRET_FILE=\"" + *file + "\"", deadline);
  if (descriptor) return secret_of_descriptor(*descriptor, deadline);
  return required("TUTTI_SECRET",
                  "a text that only this job's ranks know, or TUTTI_SECRET_FILE, a file that has "
                  "it, or TUTTI_SECRET_FD, an open descriptor");
}

}  // namespace

TcpOptions TcpOptions::from_environment() {
  runtime::refuse_unknown_settings();
  TcpOptions options;
  options.rank =
      Rank{parse_number(required("TUTTI_RANK", "this process's rank, 0 .. TUTTI_SIZE - 1"),
                        "TUTTI_RANK", "a rank, 0 .. TUTTI_SIZE - 1")};
  options.rank_count =
      parse_number(required("TUTTI_SIZE", "the number of ranks"), "TUTTI_SIZE", "1 or more");
  if (options.rank_count == 0) refuse("TUTTI_SIZE", "0", "1 or more");
  if (index_of(options.rank) >= options.rank_count)
    refuse("TUTTI_RANK", std::to_string(index_of(options.rank)),
           "0 .. " + std::to_string(options.rank_count - 1) + " (TUTTI_SIZE - 1)");
  options.rendezvous =
      required("TUTTI_RENDEZVOUS", "host:port on which rank 0 listens, for example 10.0.0.1:5555");
  if (auto text = value_of("TUTTI_BOOTSTRAP_TIMEOUT"))
    options.timeout = parse_seconds(*text, "TUTTI_BOOTSTRAP_TIMEOUT");
  options.secret = secret_of_environment(Deadline::after(options.timeout, detail::now()));
  return options;
}

}  // namespace tutti
