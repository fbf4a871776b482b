#include "verbs/port_choice.hpp"

#include <algorithm>
#include <cassert>
#include <tuple>
#include <tutti/detail/number_in.hpp>

namespace tutti::verbs {
namespace {

using Ports = std::span<const PortDescription>;

/// A request taken apart.
struct Request {
  std::string device;
  std::string port_text;         // the text after the colon
  std::optional<unsigned> port;  // that text as a number, if it is one
  bool has_port = false;

  bool names(const PortDescription& candidate) const { return candidate.device == device; }
  bool fits(const PortDescription& candidate) const {
    if (device.empty() && !has_port) return true;
    return names(candidate) && (!has_port || candidate.port == 0 || port == candidate.port);
  }
};

Request parse(const std::string& text, Ports ports) {
  const std::size_t colon = text.rfind(':');
  const auto is_device = [&](const PortDescription& port) { return port.device == text; };
  if (colon == std::string::npos || std::any_of(ports.begin(), ports.end(), is_device))
    return {.device = text, .port_text = {}, .port = {}, .has_port = false};
  const std::string port = text.substr(colon + 1);
  return {.device = text.substr(0, colon),
          .port_text = port,
          .port = detail::number_in<unsigned>(port),
          .has_port = true};
}

std::string list_of(Ports ports) {
  std::string text;
  for (const PortDescription& port : ports) {
    const std::string obstacle = obstacle_of(port);
    text += (text.empty() ? "" : ", ") + port.name() + " (" +
            (obstacle.empty() ? "usable" : obstacle) + ")";
  }
  return text.empty() ? "none" : text;
}

/// The ports of the requested device, as valid values of a request.
std::string ports_of(const Request& request, Ports ports) {
  std::string text;
  for (const PortDescription& port : ports)
    if (request.names(port)) text += (text.empty() ? "" : " or ") + port.name();
  return text;
}

/// Explains why there is no choice: no port fits the request, or none that fits can be used.
std::string problem_of(const Request& request, const std::string& text, Ports ports) {
  const std::string there_are = "; there are " + list_of(ports);
  if (text.empty())
    return "no port can be used: " + list_of(ports) +
           "; bring the link of one up, or give it an address";
  const std::string origin = "device \"" + text + "\" (TUTTI_DEVICE or ContextOptions::device): ";
  const auto named = [&](const PortDescription& port) { return request.names(port); };
  const auto fitting = [&](const PortDescription& port) { return request.fits(port); };
  if (std::none_of(ports.begin(), ports.end(), named))
    return origin + "no device is called \"" + request.device + "\"; expected name or name:port" +
           there_are;
  const std::string expected = "; expected " + ports_of(request, ports) + " or " + request.device;
  if (request.has_port && !request.port)
    return origin + "\"" + request.port_text + "\" is no port number" + expected;
  const auto first = std::find_if(ports.begin(), ports.end(), fitting);
  if (first == ports.end())
    return origin + request.device + " has no port " + request.port_text + expected;
  const bool only = std::count_if(ports.begin(), ports.end(), fitting) == 1;
  return origin + "it cannot be used: " + (only ? obstacle_of(*first) : "none of its ports can") +
         "; expected a usable port" + there_are;
}

/// The properties that decide, the most important one first; smaller is better, and the first of
/// equals wins.
auto rank_of(const PortDescription& port, const Surroundings& surroundings) {
  return std::tuple(port.is_software(), port.link != LinkLayer::infiniband, !port.locality.known(),
                    port.locality.known() ? distance_to(port.locality, surroundings) : 0);
}

/// Why a usable port that fits the request was not chosen.
enum class Drawback { software, link, unknown_locality, distance, order };

Drawback drawback_of(const PortDescription& loser, const PortDescription& winner,
                     const Surroundings& surroundings) {
  assert(rank_of(loser, surroundings) >= rank_of(winner, surroundings));
  if (loser.is_software() != winner.is_software()) return Drawback::software;
  if (loser.link != winner.link) return Drawback::link;
  if (loser.locality.known() != winner.locality.known()) return Drawback::unknown_locality;
  return rank_of(loser, surroundings) == rank_of(winner, surroundings) ? Drawback::order
                                                                       : Drawback::distance;
}

std::string text_of(Drawback drawback, const PortDescription& loser) {
  switch (drawback) {
    case Drawback::software:
      return "software device, used where no real port is active";
    case Drawback::link:
      return "RoCE, and InfiniBand is there";
    case Drawback::unknown_locality:
      return "nobody knows how near it is";
    case Drawback::distance:
      return loser.locality.numa_node
                 ? "farther: NUMA node " + std::to_string(*loser.locality.numa_node)
                 : "farther: " + text_of(loser.locality);
    case Drawback::order:
      return "as good, but later in the list";
  }
  return "?";
}

/// Why the winner was chosen, given the drawbacks of the usable rivals.
std::string merit_of(const PortDescription& winner, const std::vector<Drawback>& rivals,
                     const Surroundings& surroundings, bool is_asked_for) {
  const auto some = [&](Drawback drawback) {
    return std::find(rivals.begin(), rivals.end(), drawback) != rivals.end();
  };
  if (some(Drawback::distance))
    return "nearest to CPUs " + detail::text_of(surroundings.allowed) + ": " +
           text_of(winner.locality);
  if (winner.is_software())
    return std::string(some(Drawback::order) ? "first software device" : "software device") +
           (is_asked_for ? "" : ", as no real port is active");
  if (some(Drawback::order)) return "first of the usable ports that are equally near";
  if (some(Drawback::unknown_locality)) return "near: " + text_of(winner.locality);
  if (some(Drawback::link)) return "InfiniBand";
  return "the only usable port of a real device";
}

std::string reason_of(Ports ports, const PortChoice& choice, const std::string& merit) {
  std::string others;
  for (std::size_t i = 0; i < ports.size(); ++i)
    if (i != choice.chosen)
      others += (others.empty() ? "; not taken: " : ", ") + ports[i].name() + " (" +
                choice.verdicts[i] + ")";
  return merit + others;
}

}  // namespace

std::string obstacle_of(const PortDescription& port) {
  if (!port.unfit.empty()) return port.unfit;
  if (port.port == 0) return "device " + port.state;
  if (!port.active)
    return "port " + port.state +
           (port.attributes.state == IBV_PORT_INIT ? ": no subnet manager has set it up" : "");
  return port.gids.chosen ? "" : "no usable GID";
}

PortChoice choose_port(Ports ports, const Surroundings& surroundings, const std::string& request) {
  PortChoice choice;
  const Request wanted = parse(request, ports);
  for (std::size_t i = 0; i < ports.size(); ++i) {
    if (!wanted.fits(ports[i]) || !obstacle_of(ports[i]).empty()) continue;
    if (!choice.chosen ||
        rank_of(ports[i], surroundings) < rank_of(ports[*choice.chosen], surroundings))
      choice.chosen = i;
  }
  std::vector<Drawback> rivals;
  for (std::size_t i = 0; i < ports.size(); ++i) {
    if (i == choice.chosen) {
      choice.verdicts.emplace_back("taken");
    } else if (std::string obstacle = obstacle_of(ports[i]); !obstacle.empty()) {
      choice.verdicts.push_back(std::move(obstacle));
    } else if (!choice.chosen || !wanted.fits(ports[i])) {
      choice.verdicts.emplace_back("not asked for");
    } else {
      rivals.push_back(drawback_of(ports[i], ports[*choice.chosen], surroundings));
      choice.verdicts.push_back(text_of(rivals.back(), ports[i]));
    }
  }
  if (!choice.chosen) {
    choice.reason = problem_of(wanted, request, ports);
    return choice;
  }
  std::string merit = "TUTTI_DEVICE or code asked for " + request;
  if (request.empty() || !rivals.empty())
    merit = (request.empty() ? "" : merit + "; ") +
            merit_of(ports[*choice.chosen], rivals, surroundings, !request.empty());
  assert(choice.verdicts.size() == ports.size());
  assert(*choice.chosen < ports.size());
  choice.verdicts[*choice.chosen] += ": " + merit;
  choice.reason = reason_of(ports, choice, merit);
  return choice;
}

}  // namespace tutti::verbs
