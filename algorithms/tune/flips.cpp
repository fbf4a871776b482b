#include "tune/flips.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <tutti/detail/enumerators.hpp>

#include "tune/choose.hpp"
#include "tune/machine.hpp"
#include "tune/names.hpp"
#include "tune/prices.hpp"

namespace tutti::tune {
namespace {

/// A parameter in a sentence, and how its value is written.
std::string words_of(Parameter parameter) {
  static constexpr const char* words[parameter_count] = {"the latency between nodes",
                                                         "what a receiver spends on a message",
                                                         "the gap of a port",
                                                         "what a rank spends on sending a message",
                                                         "the time of a byte at a port",
                                                         "what combining a value takes",
                                                         "what combining a byte takes",
                                                         "the latency inside a node",
                                                         "what a store inside a node takes",
                                                         "what receiving inside a node takes",
                                                         "the time of a byte inside a node",
                                                         "what reading in place takes",
                                                         "the time of a byte that is read in place",
                                                         "the fan"};
  return words[static_cast<std::size_t>(parameter)];
}
std::string value_of(Parameter parameter, std::int64_t value) {
  const bool is_of_byte = std::string(key_of(parameter)).ends_with("_fs");
  return in_thousands(value, is_of_byte ? "ps" : "ns");
}

}  // namespace

std::string what_would_flip(const CollectiveRequest& request, const Topology& topology,
                            const Knowledge& knowledge) {
  const std::string now = choose(request, topology, knowledge).name();
  std::string text;
  for (const Parameter parameter : detail::enumerators<Parameter::inside_read_per_byte>) {
    const std::int64_t value = knowledge.priced()[parameter].value;
    if (value <= 0) continue;
    const auto name_at = [&](std::int64_t other) {
      Knowledge changed = knowledge;
      changed.machine = knowledge.priced();
      // The interval moves with the value, because how far the value may be off also decides.
      const Figure known = changed.machine[parameter];
      const auto moved = [&](std::int64_t end) {
        return scaled(end, static_cast<std::uint64_t>(other), static_cast<std::uint64_t>(value));
      };
      changed.machine[parameter] = {.value = other,
                                    .low = std::min(moved(known.low), other),
                                    .high = std::max(moved(known.high), other),
                                    .origin = known.origin};
      if (knowledge.priced() == knowledge.untuned) changed.untuned = changed.machine;
      return choose(request, topology, changed).name();
    };
    // At 1.25, 1.5, 2, 3, 4, 6 and 8 times the value, and at as many parts of it, until another
    // choice wins; then the interval in which it begins to win is halved until it is at most a
    // hundredth of the value.
    struct Flip {
      std::int64_t at;
      std::string to;
      std::int64_t times;  // a thousand times the factor
    };
    std::optional<Flip> nearest;
    for (const bool is_up : {false, true}) {
      std::int64_t same = value;
      for (const std::int64_t eighths : {10, 12, 16, 24, 32, 48, 64}) {
        const std::int64_t other = is_up ? value * eighths / 8 : value * 8 / eighths;
        if (name_at(other) == now) {
          same = other;
          continue;
        }
        std::int64_t flipped = other;
        while (std::max(same, flipped) - std::min(same, flipped) >
               std::max<std::int64_t>(value / 100, 1)) {
          const std::int64_t middle = (same + flipped) / 2;
          (name_at(middle) == now ? same : flipped) = middle;
        }
        const std::int64_t times =
            1000 * std::max(flipped, value) / std::max<std::int64_t>(std::min(flipped, value), 1);
        if (!nearest || times < nearest->times) nearest = {flipped, name_at(flipped), times};
        break;
      }
    }
    if (!nearest) continue;
    text += (text.empty() ? "" : "\n") + nearest->to + " if " + words_of(parameter) + " were " +
            (nearest->at < value ? "below " : "above ") + value_of(parameter, nearest->at);
  }
  return text;
}

}  // namespace tutti::tune
