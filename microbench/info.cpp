#include "microbench/info.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <tutti/bootstrap.hpp>
#include <tutti/communicator.hpp>

#include "api/settings.hpp"
#include "microbench/machine.hpp"
#include "verbs/connection_request.hpp"
#include "verbs/device.hpp"
#include "verbs/queue_pair.hpp"

namespace tutti::bench {
namespace {

std::string memory_text(std::uint64_t bytes) {
  if (bytes >= 10ull << 30) return fmt::format("{} GiB", bytes >> 30);
  if (bytes >= 10ull << 20) return fmt::format("{} MiB", bytes >> 20);
  return fmt::format("{} KiB", bytes >> 10);
}

const char* name_of(verbs::LinkLayer link) {
  switch (link) {
    case verbs::LinkLayer::infiniband:
      return "InfiniBand";
    case verbs::LinkLayer::ethernet:
      return "Ethernet";
  }
  return "?";
}

InfoSection devices(const std::vector<verbs::PortDescription>& ports, std::size_t chosen) {
  InfoSection section{.title = "Devices and ports", .lines = {}};
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const verbs::PortDescription& port = ports[i];
    const std::string name = fmt::format("{}:{}", port.device, port.port);
    section.lines.emplace_back(
        name, fmt::format("{}, {}, {}, driver {}{}", port.state, name_of(port.link),
                          port.active ? "active" : "not active", port.driver->name,
                          i == chosen ? "; chosen" : ""));
    for (const verbs::GidVerdict& verdict : port.gids.verdicts)
      section.lines.emplace_back(
          fmt::format("{} GID[{}]", name, verdict.candidate.index),
          fmt::format("{} {}: {}", verbs::text_of(verdict.candidate.gid),
                      verbs::name_of(verdict.candidate.type), verdict.reason));
  }
  return section;
}

/// The inline size that the device grants where the library asks for its usual one.
std::string inline_text(const verbs::Port& port) {
  const verbs::Driver& driver = port.driver();
  const verbs::DomainHandle domain(driver.alloc_pd(port.device.get()), {&driver});
  if (!domain) return fmt::format("unknown: alloc_pd: {}", std::strerror(errno));
  const verbs::CompletionQueueHandle queue(
      driver.create_cq(port.device.get(), 64, nullptr, nullptr, 0), {&driver});
  if (!queue) return fmt::format("unknown: create_cq: {}", std::strerror(errno));
  const verbs::QueuePair pair(port, domain.get(), queue.get(),
                              {.sends_max = 16, .receives_max = 16});
  return fmt::format("{} bytes", pair.inline_bytes());
}

std::string lockable_memory_text() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return std::strerror(errno);
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : memory_text(limit.rlim_cur);
}

std::string shared_memory_text() {
  struct statvfs space {};
  if (statvfs("/dev/shm", &space) != 0) return fmt::format("not there: {}", std::strerror(errno));
  return fmt::format("{}, of which {} free", memory_text(space.f_frsize * space.f_blocks),
                     memory_text(space.f_frsize * space.f_bavail));
}

InfoSection limits(const verbs::Port& port) {
  return {.title = "Limits",
          .lines = {{"locked memory (ulimit -l)", lockable_memory_text()},
                    {"/dev/shm", shared_memory_text()},
                    {"queue pairs (max_qp)", fmt::format("{}", port.limits.max_qp)},
                    {"requests of each (max_qp_wr)", fmt::format("{}", port.limits.max_qp_wr)},
                    {"completions (max_cqe)", fmt::format("{}", port.limits.max_cqe)},
                    {"inline data granted", inline_text(port)}}};
}

InfoSection processors() {
  const CpuSet cpus = allowed_cpus();
  InfoSection section{
      .title = "Processors",
      .lines = {{"model", cpu_model()},
                {"CPUs allowed", fmt::format("{} ({})", text_of(cpus), cpus.list().size())}}};
  for (const NumaNode& node : numa_nodes())
    section.lines.emplace_back(fmt::format("NUMA node {}", node.number), "CPUs " + node.cpus);
  return section;
}

InfoSection settings_in_force() {
  InfoSection section{.title = "Settings", .lines = {}};
  for (const api::Setting& setting : api::settings()) {
    const char* value = std::getenv(setting.name);
    const bool secret = std::string_view(setting.name) == "TUTTI_SECRET";
    section.lines.emplace_back(setting.name, fmt::format("{}  [{}; {}]",
                                                         value == nullptr ? "default"
                                                         : secret         ? "(set)"
                                                                          : value,
                                                         setting.takes, setting.meaning));
  }
  return section;
}

}  // namespace

std::vector<InfoSection> gather_info() {
  const api::ContextSettings settings = api::context_settings({});
  if (std::getenv("TUTTI_RANK") != nullptr) static_cast<void>(TcpOptions::from_environment());
  const std::vector<verbs::PortDescription> ports = verbs::list_ports();
  std::string reason;
  const std::size_t chosen = verbs::choose_port(ports, settings.device, reason);
  const verbs::Port port = verbs::open_port(settings.device);
  std::vector<InfoSection> sections = {devices(ports, chosen)};
  sections.push_back(
      {.title = "Choice",
       .lines = {{"port", fmt::format("{}: {}", port.name(), reason)},
                 {"GID", fmt::format("[{}] {} {}", port.gid.index, verbs::text_of(port.gid.gid),
                                     verbs::name_of(port.gid.type))}}});
  if (settings.connect == ConnectBy::cm) {
    const std::string obstacle = verbs::obstacle_to_address(port.description, port.gid);
    sections.back().lines.emplace_back(
        "connect", obstacle.empty() ? "by address, with rdma_cm"
                                    : fmt::format("not possible by address: it is {}", obstacle));
  }
  sections.push_back(limits(port));
  sections.push_back({.title = "Nodes",
                      .lines = {{"map",
                                 "every rank counts as its own node until shared memory "
                                 "inside a node is used"}}});
  sections.push_back(processors());
  sections.push_back(settings_in_force());
  return sections;
}

}  // namespace tutti::bench
