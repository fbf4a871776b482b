#include "microbench/info.hpp"

#include <fmt/format.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>
#include <string_view>
#include <tutti/bootstrap.hpp>
#include <tutti/communicator.hpp>
#include <tutti/detail/descriptor.hpp>
#include <tutti/detail/names.hpp>

#include "bootstrap/domain.hpp"
#include "bootstrap/node_map.hpp"
#include "microbench/info_ports.hpp"
#include "microbench/machine.hpp"
#include "runtime/settings.hpp"
#include "runtime/tuning_agreement.hpp"
#include "runtime/tuning_table.hpp"
#include "shm/copy_costs.hpp"
#include "shm/single_copy_rule.hpp"
#include "verbs/arena.hpp"
#include "verbs/connection.hpp"
#include "verbs/connection_manager.hpp"
#include "verbs/connection_request.hpp"
#include "verbs/device.hpp"
#include "verbs/lock_limit.hpp"
#include "verbs/memory_left.hpp"
#include "verbs/queue_pair.hpp"

namespace tutti::bench {
namespace {

/// The inline size that the device grants where the library asks for its usual one.
std::string inline_text(const verbs::Port& port) {
  const verbs::Driver& driver = port.driver();
  const verbs::ProtectionDomainHandle domain(driver.alloc_pd(port.device.get()), {&driver});
  if (!domain) return fmt::format("unknown: alloc_pd: {}", std::strerror(errno));
  const verbs::CompletionQueueHandle queue(
      driver.create_cq(port.device.get(), 64, nullptr, nullptr, 0), {&driver});
  if (!queue) return fmt::format("unknown: create_cq: {}", std::strerror(errno));
  try {
    const verbs::QueuePair pair(port, domain.get(), queue.get(),
                                {.sends_max = 16, .receives_max = 16});
    return fmt::format("{} bytes", pair.inline_bytes());
  } catch (const Error& error) {
    return fmt::format("unknown: {}", error.what());
  }
}

std::string memory_left_text() {
  const verbs::MemoryLeft left = verbs::memory_left();
  if (left.bytes == SIZE_MAX) return "unknown";
  return fmt::format("{}, as {} says", memory_text(left.bytes), left.limited_by);
}

std::string shared_notifications_text(const runtime::ContextSettings& settings,
                                      const verbs::Port& port) {
  const runtime::SharedNotificationsChoice choice = runtime::choose_shared_notifications(
      settings.shared_notifications, runtime::promises_order(port),
      port.driver().clock().is_simulated());
  const std::string& found = port.placement.order.source;
  const std::string reason = choice.reason + (found.empty() ? "" : "; " + found);
  if (choice.in_force == SharedNotifications::republished)
    return fmt::format("republished by the rank that polls them ({}){}", reason,
                       verbs::places_writes_in_order(port) && !runtime::promises_order(port)
                           ? "; words can be used here, if all ranks ask for them "
                             "(TUTTI_SHARED_NOTIFICATIONS=words)"
                           : "");
  return fmt::format("words that the device writes ({}{})", reason,
                     verbs::places_writes_in_order(port)
                         ? ""
                         : "; refused: the device does not promise to place writes in order");
}

InfoSection choice_section(const runtime::ContextSettings& settings, const verbs::Port& port) {
  return {.title = "Choice",
          .lines = {{"port", fmt::format("{}: {}", port.name(), port.reason)},
                    {"GID", fmt::format("[{}] {} {}", port.gid.index, verbs::text_of(port.gid.gid),
                                        verbs::name_of(port.gid.type))},
                    {"path MTU", mtu_text(port.description.attributes.active_mtu) +
                                     "; towards a rank whose port has a smaller one, that one"},
                    {"shared notifications", shared_notifications_text(settings, port)}}};
}

/// How messages between nodes say that they are there, and why.
std::string notify_text(const runtime::ContextSettings& settings, const verbs::Port& port,
                        const std::string& obstacle) {
  const std::string& found = port.placement.lines.source;
  const std::string flag =
      "messages of at most 56 bytes by a word that is polled in memory, others with an immediate" +
      (found.empty() ? "" : " (" + found + ")");
  if (settings.notify == Notify::flag)
    return obstacle.empty() ? "flag (TUTTI_NOTIFY): " + flag : obstacle;
  const bool asked = std::getenv("TUTTI_NOTIFY") != nullptr;
  return std::string("immediate (") + (asked ? "TUTTI_NOTIFY" : "default") + "); flag: " +
         (obstacle.empty() ? "can be used here, " + flag : "cannot be used here: " + obstacle);
}

/// `port` is null where none could be opened.
InfoSection limits(const verbs::Port* port, std::size_t arena_bytes,
                   std::uint32_t connections_max) {
  const bool locks = port == nullptr || verbs::locks_memory(*port);
  InfoSection section{
      .title = "Limits",
      .lines = {{"locked memory (ulimit -l)", lock_text(verbs::lock_limit(), locks)},
                {"memory of a rank",
                 fmt::format("{} (TUTTI_ARENA_BYTES), which its node maps; none in /dev/shm",
                             memory_text(verbs::Arena::total_bytes(arena_bytes)))},
                {"memory left", memory_left_text()}}};
  if (port == nullptr) return section;
  section.lines.emplace_back("queue pairs (max_qp)", fmt::format("{}", port->limits.max_qp));
  section.lines.emplace_back("connections of a context",
                             connections_max > 0
                                 ? fmt::format("{} (TUTTI_CONNECTIONS_MAX)", connections_max)
                                 : "as many as the device has queue pairs and completions for");
  section.lines.emplace_back("requests of each (max_qp_wr)",
                             fmt::format("{}", port->limits.max_qp_wr));
  section.lines.emplace_back("completions (max_cqe)", fmt::format("{}", port->limits.max_cqe));
  section.lines.emplace_back("inline data granted", inline_text(*port));
  return section;
}

InfoSection processors() {
  const CpuSet cpus = allowed_cpus();
  InfoSection section{
      .title = "Processors",
      .lines = {{"model", cpu_model()},
                {"CPUs allowed", fmt::format("{} ({})", text_of(cpus), cpus.list().size())}}};
  const bootstrap::CpuDomain domain = bootstrap::domain_of(cpus);
  section.lines.emplace_back(
      "domain of this process",
      domain.name() == bootstrap::no_domain
          ? "none: " + domain.reason
          : fmt::format("CPUs {} ({})", text_of(domain.cpus), domain.reason));
  for (const verbs::NumaNode& node : verbs::look_around().nodes)
    section.lines.emplace_back(fmt::format("NUMA node {}", node.number),
                               "CPUs " + text_of(node.cpus));
  return section;
}

/// `made_on`: the machine of the file that the figures are from.
std::string figure_text(const tune::Fingerprint& made_on, const tune::Machine& machine,
                        tune::Parameter parameter) {
  const tune::Figure& figure = machine[parameter];
  const std::string value = fmt::format("{}", figure.value);
  const std::string interval = figure.low == figure.high
                                   ? std::string()
                                   : fmt::format(" ({} to {})", figure.low, figure.high);
  return value + interval + ", " + tune::origin_text(made_on, machine, parameter);
}

/// Which table is in force for a rank that runs here, and what it knows.
InfoSection tuning(const runtime::ContextSettings& settings, const verbs::Port& port,
                   const runtime::FoundTable& found) {
  const char* const asked = std::getenv("TUTTI_TUNING");
  const runtime::TuningInForce in_force =
      runtime::tuning_of_one(found, settings, runtime::port_card_of(port, settings));
  InfoSection section{
      .title = "Tuning",
      .lines = {{"mode", fmt::format("{} ({})", name_of(settings.tuning),
                                     asked == nullptr ? "default" : "TUTTI_TUNING")},
                {"table", found.refusal ? found.refusal->what() : in_force.table}}};
  for (std::size_t i = 0; i < found.remarks.size(); ++i)  // labels are keys of JSON
    section.lines.emplace_back(i == 0 ? "not taken" : fmt::format("not taken ({})", i + 1),
                               found.remarks[i]);
  if (!found.table && !found.refusal && settings.tuning != TuningMode::off &&
      settings.tuning_file.empty())
    section.lines.emplace_back("looked for",
                               fmt::format("{}", fmt::join(runtime::tuning_paths(), ", ")));
  section.lines.emplace_back("bits of results",
                             settings.tuning_keeps_bits
                                 ? "as without a file (TUTTI_TUNING_BITS=keep)"
                                 : "as the agreement of a call allows; a file may change them");
  if (settings.tuning_appends)
    section.lines.emplace_back(
        "first calls", settings.tuning == TuningMode::first_call
                           ? "rank 0 of each communicator appends what they find to the file"
                           : "none are made, so that TUTTI_TUNING_APPEND=1 does nothing "
                             "(set TUTTI_TUNING=first_call)");
  section.lines.emplace_back(
      "several ranks",
      "where they find different tables, that of rank 0 holds for all; where no "
      "table is in force, the slowest port of all counts");
  if (in_force.knowledge.keeps_to_untuned())
    section.lines.emplace_back(
        "prices", fmt::format("those of the preset {}, which all intervals of the table hold",
                              in_force.knowledge.untuned.name));
  const tune::Machine& machine = in_force.knowledge.machine;
  const tune::Fingerprint made_on = found.table ? found.table->tuning.made_on : tune::Fingerprint{};
  InfoSection part{.title = fmt::format("Machine {}", machine.name), .lines = {}};
  for (std::size_t i = 0; i < tune::parameter_count; ++i) {
    const auto parameter = static_cast<tune::Parameter>(i);
    part.lines.emplace_back(tune::key_of(parameter), figure_text(made_on, machine, parameter));
  }
  section.parts.push_back(std::move(part));
  return section;
}

InfoSection settings_in_force() {
  InfoSection section{.title = "Settings", .lines = {}};
  for (const runtime::Setting& setting : runtime::settings()) {
    const char* value = std::getenv(setting.name);
    const bool secret = std::string_view(setting.name) == "TUTTI_SECRET";
    section.lines.emplace_back(
        setting.name, fmt::format("{}  [{}]",
                                  value == nullptr ? fmt::format("default ({})", setting.fallback)
                                  : secret         ? "(set)"
                                                   : value,
                                  setting.decides));
  }
  return section;
}

/// Opens the port that was chosen, or says why none can be opened.
std::optional<verbs::Port> open_chosen(std::vector<verbs::PortDescription> ports,
                                       const verbs::PortChoice& choice,
                                       std::optional<Error>& problem) {
  try {
    if (choice.chosen) return verbs::open_port(std::move(ports[*choice.chosen]), choice.reason);
    problem = Error(ErrorCode::no_device, choice.reason);
  } catch (const Error& error) {
    problem = error;
  }
  return std::nullopt;
}

/// The error that a context which connects by address would meet.
std::optional<Error> problem_of_connecting(const verbs::Port& port) {
  try {
    if (const std::string obstacle = verbs::obstacle_to_address(port.description, port.gid);
        !obstacle.empty())
      return Error(ErrorCode::unsupported, "TUTTI_CONNECT=cm: " + port.name() + " is " + obstacle);
    const verbs::ConnectionManager manager(port, 0);
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

/// The error that a context would meet at the limit on locked memory.
std::optional<Error> problem_of_locking(const verbs::Port& port, std::size_t arena_bytes) {
  try {
    verbs::check_lockable(port, verbs::Arena::total_bytes(arena_bytes), "the arena");
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

InfoSection nodes(const runtime::ContextSettings& settings) {
  InfoSection section{.title = "Nodes", .lines = {}};
  if (settings.ranks_per_node.empty())
    section.lines.emplace_back(
        "map", "found: ranks of this host that can map each other's memory are a node");
  else
    section.lines.emplace_back(
        "map", fmt::format("imposed: {} ranks per node, placed {}",
                           fmt::join(settings.ranks_per_node, ","), name_of(settings.placement)));
  section.lines.emplace_back(
      "domains",
      !settings.ranks_per_domain.empty()
          ? fmt::format("imposed: {} ranks each", fmt::join(settings.ranks_per_domain, ","))
      : settings.domains_above == SIZE_MAX
          ? "never"
          : fmt::format("found, in nodes of more than {} ranks", settings.domains_above));
  const bootstrap::HostIdentity host = bootstrap::host_identity();
  std::string boot;
  for (const std::byte byte : host.boot) boot += fmt::format("{:02x}", std::to_integer<int>(byte));
  section.lines.emplace_back(
      "this host", fmt::format("boot {}, namespaces: ipc {}, uts {}, pid {}", boot,
                               host.ipc_namespace, host.uts_namespace, host.pid_namespace));
  return section;
}

/// Forks two ranks of a node, each with mapped memory, which measure what copies between them cost.
std::optional<shm::CopyCosts> copy_costs(const runtime::ContextSettings& settings) {
  struct Told {
    bool is_measured;
    shm::CopyCosts costs;
  };
  const std::size_t blocks_bytes =
      std::max(shm::costs_chunk_bytes, runtime::staging_bytes(settings.arena_bytes));
  const std::size_t mapping_bytes = shm::costs_page_bytes + blocks_bytes;
  const auto shared = [](std::size_t bytes) {
    return detail::Mapping(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0),
                           bytes);
  };
  const detail::Mapping mappings[2] = {shared(mapping_bytes), shared(mapping_bytes)};
  const detail::Mapping answer = shared(sizeof(Told));
  if (!mappings[0] || !mappings[1] || !answer) return std::nullopt;
  const auto one_rank = [&](Exchange& exchange) {
    const std::size_t self = index_of(exchange.self());
    if (const std::vector<unsigned> cpus = allowed_cpus().list(); cpus.size() >= 2)
      static_cast<void>(bind_to(cpus[self]));
    // A fork does not take along which pages of shared memory are mapped.
    const auto* const theirs = static_cast<const volatile std::byte*>(mappings[1 - self].data());
    for (std::size_t at = 0; at < mapping_bytes; at += shm::costs_page_bytes)
      static_cast<void>(theirs[at]);
    const auto process = static_cast<std::int32_t>(::getpid());
    std::int32_t processes[2] = {};
    exchange.allgather(std::as_bytes(std::span(&process, 1)),
                       std::as_writable_bytes(std::span(processes)), std::chrono::seconds(5));
    // Both have forked from one process, so the other one's block lies at the same address here.
    const shm::CopyProbe probe{
        .id = std::uint64_t{1} << 16,
        .mine = shm::board_of(mappings[self].data()),
        .theirs = shm::board_of(mappings[1 - self].data()),
        .blocks = std::span(mappings[self].data() + shm::costs_page_bytes, blocks_bytes),
        .their_block_at =
            [](std::uint64_t address) { return reinterpret_cast<const std::byte*>(address); },
        .their_process = processes[1 - self]};
    const shm::CopyOutcome outcome =
        self == 0 ? shm::measure_copies_as_leader(probe) : shm::measure_copies_as_partner(probe);
    if (outcome.costs && !outcome.costs->is_word_alone)
      new (answer.data()) Told{true, *outcome.costs};
    exchange.barrier(std::chrono::seconds(5));  // its memory stays mapped until it has been read
    return 0;
  };
  try {
    static_cast<void>(run_local({.rank_count = 2}, one_rank));
  } catch (const Error&) {  // no processes: nothing is measured, and the rest is there
    return std::nullopt;
  }
  const auto& told = *reinterpret_cast<const Told*>(answer.data());
  if (!told.is_measured) return std::nullopt;
  return told.costs;
}

InfoSection copies(const runtime::ContextSettings& settings,
                   const std::optional<shm::CopyCosts>& costs) {
  InfoSection section{.title = "Copies inside a node", .lines = {}};
  section.lines.emplace_back(
      "measured now", costs ? shm::text_of(*costs)
                            : "nothing: two processes on two CPUs did not meet within 20 ms, their "
                              "figures did not agree, or process_vm_readv is refused; then nothing "
                              "is read in place");
  std::string what = "nothing";
  if (settings.single_copy_bytes)
    what =
        shm::text_of(shm::reading_from(*settings.single_copy_bytes)) + " (TUTTI_SINGLE_COPY_BYTES)";
  else if (costs)
    what =
        shm::text_of(shm::reading_by_costs(*costs)) + "; measured again when ranks of a node meet";
  section.lines.emplace_back("read in place", what);
  return section;
}

}  // namespace

Info gather_info() {
  const runtime::ContextSettings settings = runtime::context_settings({});
  const std::optional<shm::CopyCosts> costs =
      copy_costs(settings);  // forks, before devices have threads
  if (std::getenv("TUTTI_RANK") != nullptr) static_cast<void>(TcpOptions::from_environment());
  const std::vector<verbs::PortDescription> ports = verbs::list_ports();
  const verbs::Surroundings surroundings = verbs::look_around();
  const verbs::PortChoice choice = verbs::choose_port(ports, surroundings, settings.device);
  Info info{.sections = {port_section(ports, choice, surroundings)}};
  std::optional<verbs::Port> port = open_chosen(ports, choice, info.problem);
  runtime::FoundTable found;
  if (port) {
    found = runtime::find_table(settings, *port);
    port->placement = runtime::found_placement(found);
  }
  if (port)
    info.sections.push_back(choice_section(settings, *port));
  else
    info.sections.push_back({.title = "Choice", .lines = {{"port", info.problem->what()}}});
  if (port && settings.connect == ConnectBy::cm) {
    info.problem = problem_of_connecting(*port);
    info.sections.back().lines.emplace_back(
        "connect", info.problem ? info.problem->what() : "by address, with rdma_cm");
  }
  if (port) {
    const std::string obstacle = verbs::why_not_lines(*port);
    info.sections.back().lines.emplace_back("notify", notify_text(settings, *port, obstacle));
    if (!obstacle.empty() && settings.notify == Notify::flag && !info.problem)
      info.problem = Error(ErrorCode::unsupported, "TUTTI_NOTIFY=flag: " + obstacle);
  }
  const std::size_t memory_bytes =
      settings.arena_bytes + runtime::staging_bytes(settings.arena_bytes);
  if (port && !info.problem) info.problem = problem_of_locking(*port, memory_bytes);
  if (port) {
    info.sections.push_back(tuning(settings, *port, found));
    if (found.refusal && !info.problem) info.problem = found.refusal;
  }
  info.sections.push_back(limits(port ? &*port : nullptr, memory_bytes, settings.connections_max));
  info.sections.push_back(nodes(settings));
  info.sections.push_back(copies(settings, costs));
  info.sections.push_back(processors());
  info.sections.push_back(settings_in_force());
  return info;
}

}  // namespace tutti::bench
