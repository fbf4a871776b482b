#include "microbench/info_ports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tutti/detail/enumerators.hpp>
#include <utility>

#include "verbs/port_rate.hpp"

namespace tutti::bench {
namespace {

const char* name_of(verbs::LinkLayer link) {
  return detail::name_in<verbs::LinkLayer::ethernet>({"InfiniBand", "Ethernet (RoCE)"}, link);
}

std::string link_text(const verbs::PortDescription& port) {
  if (port.port == 0) return port.state;
  std::string text = fmt::format("{}, {}", name_of(port.link), port.state);
  if (!port.active) return text;
  const ibv_port_attr& attributes = port.attributes;
  text += fmt::format(", {}, MTU {}", rate_text(attributes, port.link),
                      mtu_text(attributes.active_mtu));
  if (attributes.active_mtu < attributes.max_mtu)
    text += fmt::format(" (up to {})", mtu_text(attributes.max_mtu));
  if (port.link == verbs::LinkLayer::infiniband) text += fmt::format(", LID {}", attributes.lid);
  return text;
}

std::string near_text(const verbs::PortDescription& port, const verbs::Surroundings& surroundings) {
  if (!port.locality.known())
    return port.is_software() ? "every CPU: memory of this host" : "unknown: a virtual device";
  std::string text = verbs::text_of(port.locality);
  if (!surroundings.allowed.empty())
    text += fmt::format("; distance {:g} from the CPUs allowed (10: on the spot)",
                        verbs::distance_to(port.locality, surroundings));
  return text;
}

std::string driver_text(const verbs::PortDescription& port) {
  if (port.is_software()) return "software device of tutti";
  return port.kernel_driver.empty() ? "a virtual device, over libibverbs"
                                    : port.kernel_driver + ", over libibverbs";
}

bool is_empty(const ibv_gid& gid) {
  return std::all_of(gid.raw, gid.raw + 16, [](unsigned byte) { return byte == 0; });
}

void add_gids(InfoSection& part, const verbs::PortDescription& port, bool port_is_taken) {
  int listed = 0;
  for (const verbs::GidVerdict& verdict : port.gids.verdicts) {
    if (is_empty(verdict.candidate.gid)) continue;
    ++listed;
    const bool is_chosen = port.gids.chosen && verdict.candidate.index == port.gids.chosen->index;
    part.lines.emplace_back(
        fmt::format("GID[{}]", verdict.candidate.index),
        fmt::format("{} {}: {}", verbs::text_of(verdict.candidate.gid),
                    verbs::name_of(verdict.candidate.type),
                    is_chosen && !port_is_taken ? "would be taken" : verdict.reason));
  }
  const int size = port.attributes.gid_tbl_len;
  if (size > listed)
    part.lines.emplace_back("empty GIDs", fmt::format("{} of {}", size - listed, size));
}

}  // namespace

std::string rate_text(const ibv_port_attr& attributes, verbs::LinkLayer link) {
  const verbs::PortRate rate = verbs::rate_of(attributes);
  if (!rate.is_known())
    return fmt::format("unknown rate (width code {}, speed code {})", attributes.active_width,
                       attributes.active_speed);
  const double gigabits = rate.gigabits_per_second();
  return link == verbs::LinkLayer::infiniband
             ? fmt::format("{:g} Gb/s ({}X {})", gigabits, rate.lanes, rate.name)
             : fmt::format("{:g} Gb/s ({} x {:g})", gigabits, rate.lanes, rate.lane);
}

std::string mtu_text(ibv_mtu mtu) {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? fmt::format("{}", 128u << mtu)
                                                   : fmt::format("unknown (code {})", int{mtu});
}

std::string memory_text(std::uint64_t bytes) {
  if (bytes >= 10ull << 30) return fmt::format("{} GiB", bytes >> 30);
  if (bytes >= 10ull << 20) return fmt::format("{} MiB", bytes >> 20);
  return fmt::format("{} KiB", bytes >> 10);
}

std::string lock_text(const verbs::LockLimit& limit, bool is_needed) {
  if (!is_needed) return "not needed by the software device";
  if (limit.bytes == SIZE_MAX) return "unlimited";
  return memory_text(limit.bytes) +
         (limit.is_exempt ? ", which CAP_IPC_LOCK lifts for this process" : "");
}

InfoSection port_section(std::span<const verbs::PortDescription> ports,
                         const verbs::PortChoice& choice, const verbs::Surroundings& surroundings) {
  InfoSection section{.title = "Devices and ports", .lines = {}, .parts = {}};
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const verbs::PortDescription& port = ports[i];
    const std::string verdict = (i == choice.chosen ? "" : "not taken: ") + choice.verdicts[i];
    InfoSection part{.title = port.name(),
                     .lines = {{"choice", verdict},
                               {"link", link_text(port)},
                               {"near", near_text(port, surroundings)},
                               {"driver", driver_text(port)}},
                     .parts = {}};
    add_gids(part, port, i == choice.chosen);
    section.parts.push_back(std::move(part));
  }
  return section;
}

}  // namespace tutti::bench
