#include "tune/fit.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <tutti/detail/enumerators.hpp>
#include <utility>

#include "tune/generator.hpp"
#include "tune/robust_line.hpp"

namespace tutti::tune {
namespace {

using plan::Picoseconds;

/// Lines in the number of messages are told from each other by their bytes.
struct Key {
  Probe probe;
  std::uint64_t bytes = 0;
  friend bool operator<(const Key& left, const Key& right) {
    return left.probe != right.probe ? left.probe < right.probe : left.bytes < right.bytes;
  }
};
bool is_by_messages(Probe probe) {
  using enum Probe;
  return probe == stream || probe == posting || probe == waiting || probe == shared_port ||
         probe == incast || probe == inside_take;
}

bool is_valid(const Sample& sample) {
  // With these, times do not overflow.
  constexpr std::uint64_t bytes_max = std::uint64_t{1} << 32, all_bytes_max = 8 * bytes_max;
  constexpr std::uint32_t messages_max = 1u << 16;
  constexpr Picoseconds time_max = 1'000'000'000'000'000;
  return sample.time >= 0 && sample.time <= time_max && sample.messages > 0 &&
         sample.messages <= messages_max && sample.bytes <= bytes_max &&
         sample.bytes * sample.messages <= all_bytes_max && sample.ranks > 0 &&
         sample.ranks <= sample.messages;
}

template <class TimeOf>  // gives the time that counts, from the times of a cell
RobustLine line_of_one_each(const std::vector<Cell>& cells, TimeOf time_of) {
  std::vector<Cell> picked;
  picked.reserve(cells.size());
  for (const Cell& cell : cells) picked.push_back({.x = cell.x, .times = {time_of(cell.times)}});
  return RobustLine(std::move(picked));
}

double middle_of(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

/// Whether in half of the cells or more the least time is over a tenth below the middle one, which
/// is more than noise does to the least of several means.
bool is_unsteady(const std::vector<Cell>& cells) {
  constexpr double far = 0.1;
  std::vector<double> off;
  for (const Cell& cell : cells) {
    const double middle = middle_of(cell.times);
    const double least = *std::min_element(cell.times.begin(), cell.times.end());
    off.push_back((middle - least) / std::max(middle, 1.0));
  }
  return middle_of(std::move(off)) > far;
}

/// The lines of one probe through its cells: one through the least times, which have the least
/// noise; one through the middle times, which counts where the machine is unsteady; and one through
/// the middle times of each stretch of the measurement.
class Views {
 public:
  explicit Views(std::vector<Cell> cells)
      : least_(cells),
        middle_(line_of_one_each(cells, middle_of)),
        is_unsteady_(is_unsteady(cells)),
        cells_(std::move(cells)) {}

  const RobustLine& least() const { return least_; }
  const RobustLine& through() const { return is_unsteady_ ? middle_ : least_; }
  /// The line of one of `count` equal stretches of the passes.
  RobustLine of_stretch(std::size_t stretch, std::size_t count) const {
    return line_of_one_each(cells_, [&](const std::vector<double>& times) {
      const auto place = [&](std::size_t end) {
        return times.begin() + static_cast<std::ptrdiff_t>(end * times.size() / count);
      };
      return middle_of({place(stretch), place(stretch + 1)});
    });
  }

 private:
  RobustLine least_, middle_;
  bool is_unsteady_;  // the least times are of another state of the machine than most are
  std::vector<Cell> cells_;
};
using Lines = std::map<Key, Views>;

Lines lines_of(const std::vector<Sample>& samples) {
  using Place = std::pair<std::uint64_t, std::uint64_t>;  // x, and of how many messages a time is
  std::map<Key, std::map<Place, Cell>> cells;
  for (const Sample& sample : samples) {
    if (!is_valid(sample)) continue;
    const bool by_messages = is_by_messages(sample.probe);
    const Key key = by_messages ? Key{sample.probe, sample.bytes} : Key{sample.probe};
    const std::uint64_t x = by_messages ? sample.messages : sample.bytes;
    const std::uint64_t shared_by = sample.probe == Probe::inside_store ? sample.messages : 1;
    Cell& cell = cells[key][{x, shared_by}];
    cell.x = static_cast<double>(x);
    cell.times.push_back(static_cast<double>(sample.time) / static_cast<double>(shared_by));
  }
  Lines lines;
  for (auto& [key, places] : cells) {
    std::vector<Cell> in_order;
    for (auto& [place, cell] : places) in_order.push_back(std::move(cell));
    lines.emplace(key, std::move(in_order));
  }
  return lines;
}

/// The line of the fewest bytes that has a slope; none: there is none.
const Lines::value_type* shortest(const Lines& lines, Probe probe) {
  const auto found = std::find_if(lines.begin(), lines.end(), [&](const auto& line) {
    return line.first.probe == probe && line.second.least().has_slope();
  });
  return found == lines.end() ? nullptr : &*found;
}

/// Which parameters the line of a probe tells.  If there are two for one, the first that was
/// measured: the ranks of a node use their port together.
struct Tells {
  Probe probe;
  std::optional<Parameter> base, slope;
};
constexpr Tells tells[] = {
    {Probe::waiting, {}, Parameter::receive_overhead},
    {Probe::one_way, Parameter::latency, Parameter::per_byte},
    {Probe::shared_port, {}, Parameter::gap},
    {Probe::stream, {}, Parameter::gap},
    {Probe::posting, {}, Parameter::rank_gap},
    {Probe::combine, Parameter::combine, Parameter::combine_per_byte},
    {Probe::inside_take, {}, Parameter::inside_receive_overhead},
    {Probe::inside_store, Parameter::inside_send_overhead, {}},
    {Probe::inside_one_way, Parameter::inside_latency, Parameter::inside_per_byte},
    {Probe::inside_read, Parameter::inside_read_overhead, Parameter::inside_read_per_byte},
};

const char* told_by(Parameter parameter) {
  const auto found = std::find_if(std::rbegin(tells), std::rend(tells), [&](const Tells& one) {
    return one.base == parameter || one.slope == parameter;
  });
  return found == std::rend(tells) ? "?" : name_of(found->probe);
}

bool is_of_bytes(Parameter parameter) {
  using enum Parameter;
  return parameter == per_byte || parameter == combine_per_byte || parameter == inside_per_byte ||
         parameter == inside_read_per_byte;
}

std::size_t index_of(Parameter parameter) {
  return static_cast<std::size_t>(parameter);
}

using Values = std::array<double, parameter_count>;

/// Parameters as the lines tell them; others stay.
class Telling {
 public:
  void add(const Views& views, std::optional<Parameter> base, std::optional<Parameter> slope) {
    told_.push_back({&views, base, slope});
  }
  /// The number of equal stretches into which the passes of all probes are divided.  It is bounded
  /// by the probe with the fewest passes, so that a stretch is the same time for all. 0: too few
  /// passes.
  std::size_t stretches() const {
    constexpr std::size_t stretches_most = 8, passes_wanted = 5;  // of each stretch
    if (told_.empty()) return 0;
    std::size_t count = stretches_most;
    for (const Told& one : told_)
      count = std::min(count, one.views->least().times_min() / passes_wanted);
    return count > 1 ? count : 0;
  }
  bool is_told(Parameter parameter) const {
    return std::any_of(told_.begin(), told_.end(), [&](const Told& one) {
      return one.base == parameter || one.slope == parameter;
    });
  }

  template <class LineOf>  // which of the lines, as it was measured or drawn
  Values values(Values values, LineOf line_of) const {
    using enum Parameter;
    for (const Told& one : told_) {
      const Line line = line_of(*one.views);
      if (one.base) values[index_of(*one.base)] = line.base;
      if (one.slope)
        values[index_of(*one.slope)] = line.slope * (is_of_bytes(*one.slope) ? 1000 : 1);
    }
    if (is_told(latency)) values[index_of(latency)] -= values[index_of(receive_overhead)];
    if (is_told(inside_latency))
      values[index_of(inside_latency)] -=
          values[index_of(inside_send_overhead)] + values[index_of(inside_receive_overhead)];
    return values;
  }

 private:
  struct Told {
    const Views* views;
    std::optional<Parameter> base, slope;
  };
  std::vector<Told> told_ = {};
};

/// Nothing takes less than no time, nothing can be seen where it begins (plan/cost/makespan), and
/// nothing takes more than a tuning file may say.
std::int64_t whole(Parameter parameter, double value) {
  using enum Parameter;
  const std::int64_t least = parameter == latency || parameter == inside_latency ? 1 : 0;
  const auto most = static_cast<double>(most_of(parameter));
  return std::max(least, static_cast<std::int64_t>(std::llround(std::min(value, most))));
}

Values values_of(const Machine& machine) {
  Values values;
  for (std::size_t i = 0; i < parameter_count; ++i)
    values[i] = static_cast<double>(machine.figures[i].value);
  return values;
}

void remark_on(const Lines::value_type& line, std::vector<std::string>& remarks) {
  constexpr std::size_t times_wanted = 3;
  const std::string name = name_of(line.first.probe);
  const RobustLine& through = line.second.least();
  if (through.times_min() < times_wanted)
    remarks.push_back(name + " was measured less than " + std::to_string(times_wanted) +
                      " times at some length: intervals may be too narrow");
  const char* unit = is_by_messages(line.first.probe) ? " messages" : " bytes";
  if (const double at = through.break_at(); at < HUGE_VAL)
    remarks.push_back(name + " changes at " + std::to_string(std::llround(at)) + unit +
                      ": its base is that of what is shorter, its slope that of what is longer");
}

/// A parameter that the samples do not tell lies anywhere in its interval.
Values drawn_from(const Machine& machine, Generator& generator) {
  Values values;
  for (std::size_t i = 0; i < parameter_count; ++i) {
    const Figure& figure = machine.figures[i];
    const std::int64_t width = std::max<std::int64_t>(figure.high - figure.low, 0);
    values[i] = static_cast<double>(figure.low) +
                static_cast<double>(generator.below(static_cast<std::uint64_t>(width) + 1));
  }
  return values;
}

/// Sets the told parameters and their intervals of 95 %.  An interval has how far off the line of
/// least times may be, and what each stretch of time alone would have told, as machines change.
void set_told(Machine& machine, const Telling& telling, Generator& generator,
              std::vector<std::string>& remarks) {
  constexpr std::size_t replicate_count = 400, outside = replicate_count / 40;
  const Values given = values_of(machine);
  const Values values =
      telling.values(given, [](const Views& views) { return views.through().line(); });
  std::array<std::vector<double>, parameter_count> drawn;
  for (std::size_t replicate = 0; replicate < replicate_count; ++replicate) {
    const Values other = telling.values(drawn_from(machine, generator), [&](const Views& views) {
      return views.through().drawn(generator);
    });
    for (std::size_t i = 0; i < parameter_count; ++i) drawn[i].push_back(other[i]);
  }
  Values least = values, most = values;
  const std::size_t count = telling.stretches();
  for (std::size_t stretch = 0; stretch < count; ++stretch) {
    const Values other = telling.values(
        given, [&](const Views& views) { return views.of_stretch(stretch, count).line(); });
    for (std::size_t i = 0; i < parameter_count; ++i) {
      least[i] = std::min(least[i], other[i]);
      most[i] = std::max(most[i], other[i]);
    }
  }
  for (std::size_t i = 0; i < parameter_count; ++i) {
    const auto parameter = static_cast<Parameter>(i);
    if (!telling.is_told(parameter)) continue;
    std::sort(drawn[i].begin(), drawn[i].end());
    const std::int64_t value = whole(parameter, values[i]);
    if (values[i] > static_cast<double>(most_of(parameter)))
      remarks.push_back(std::string(key_of(parameter)) +
                        " is more than a tuning file may say; it is " + std::to_string(value) +
                        ", the most");
    // Times are whole picoseconds, so that one more or less says nothing.
    const std::int64_t low = whole(parameter, std::min(drawn[i][outside], least[i]) - 1);
    const std::int64_t high =
        whole(parameter, std::max(drawn[i][replicate_count - 1 - outside], most[i]) + 1);
    machine.figures[i] = {value, std::min(low, value), std::max(high, value), Origin::measured};
  }
}

/// Up to how many senders incast is a tenth at most above a line; none: as far as was measured.
std::optional<Figure> told_fan_max(const std::vector<Sample>& samples, const plan::LogGP& network) {
  std::map<std::uint64_t, std::map<std::uint32_t, Picoseconds>> times;  // by bytes and senders
  for (const Sample& sample : samples) {
    if (sample.probe != Probe::incast || !is_valid(sample)) continue;
    auto& time = times[sample.bytes].try_emplace(sample.messages, sample.time).first->second;
    time = std::min(time, sample.time);
  }
  std::optional<Figure> least;
  for (const auto& [bytes, of_bytes] : times) {
    const auto& [fewest, time_of_fewest] = *of_bytes.begin();
    const Picoseconds each = std::max(network.sending_time(bytes), network.receive_overhead);
    const auto is_above = [&, first = fewest, base = time_of_fewest](const auto& one) {
      const Picoseconds told = std::max(base + Picoseconds{one.first - first} * each,
                                        one.first * (network.rank_gap + network.receive_overhead));
      return 10 * one.second > 11 * told;
    };
    // A length that is above now and then shows noise.
    const auto last_good = std::find_if_not(of_bytes.rbegin(), of_bytes.rend(), is_above);
    if (last_good == of_bytes.rbegin()) continue;
    const auto beyond = std::prev(last_good)->first;
    const std::int64_t senders = last_good->first;
    if (!least || senders < least->value)
      least = {senders, senders, std::int64_t{beyond} - 1, Origin::measured};
  }
  return least;
}

Picoseconds predicted(const Sample& sample, const plan::Network& network) {
  const plan::LogGP& net = network.between;
  const plan::NodeMemory& inside = network.inside;
  const auto messages = static_cast<std::int64_t>(sample.messages);
  const auto there_and_back = [&](std::uint64_t there) {
    return net.travel_time(there) + net.travel_time(8) + 2 * net.receive_overhead;
  };
  switch (sample.probe) {
    case Probe::one_way:
      return net.travel_time(sample.bytes) + net.receive_overhead;
    case Probe::stream:
      return there_and_back(sample.bytes) + (messages - 1) * net.sending_time(sample.bytes);
    case Probe::posting:
      return messages * net.rank_gap;
    case Probe::shared_port: {
      const Picoseconds port = net.port_time(sample.bytes), ranks = sample.ranks;
      return there_and_back(sample.bytes) +
             (ranks * port >= net.rank_gap
                  ? (messages - 1) * port
                  : (messages / ranks - 1) * net.rank_gap + (ranks - 1) * port);
    }
    case Probe::waiting:
      return messages * net.receive_overhead;
    case Probe::combine:
      return net.work_time(sample.bytes);
    case Probe::incast:
      return std::max(
          there_and_back(sample.bytes) +
              (messages - 1) * std::max(net.sending_time(sample.bytes), net.receive_overhead),
          messages * (net.rank_gap + net.receive_overhead));
    case Probe::inside_one_way:
      return inside.store_time(sample.bytes) + inside.latency + inside.receive_overhead;
    case Probe::inside_store:
      return messages * inside.store_time(sample.bytes);
    case Probe::inside_take:
      return messages * inside.receive_overhead;
    case Probe::inside_read:
      return inside.read_time(sample.bytes);
  }
  return 0;
}

}  // namespace

const char* name_of(Probe probe) noexcept {
  return detail::name_in<Probe::inside_read>(
      {"one_way", "stream", "posting", "waiting", "combine", "shared_port", "incast",
       "inside_one_way", "inside_store", "inside_take", "inside_read"},
      probe);
}

Fit fit(const std::vector<Sample>& samples, const Machine& fallback, std::uint64_t seed) {
  using enum Parameter;
  Fit result{.machine = fallback};
  Machine& machine = result.machine;
  machine.name = "measured";
  const auto remark = [&](const std::string& text) { result.remarks.push_back(text); };

  const Lines lines = lines_of(samples);
  Telling telling;
  for (const Tells& one : tells) {
    const auto* line = shortest(lines, one.probe);
    if (line == nullptr || (one.slope && telling.is_told(*one.slope))) continue;
    telling.add(line->second, one.base, one.slope);
    remark_on(*line, result.remarks);
  }
  for (std::size_t i = 0; i < parameter_count; ++i)
    if (const auto parameter = static_cast<Parameter>(i);
        parameter != fan_max && !telling.is_told(parameter))
      remark(std::string(key_of(parameter)) + " could not be told: there are no samples of " +
             told_by(parameter) + " of two lengths; it is that of " + fallback.name);
  Generator generator(seed);
  set_told(machine, telling, generator, result.remarks);
  if (const auto told = told_fan_max(samples, machine.network().between)) machine[fan_max] = *told;

  std::size_t left_out = 0;
  for (const Sample& sample : samples) {
    left_out += is_valid(sample) ? 0 : 1;
    result.residuals.push_back(is_valid(sample) ? sample.time - predicted(sample, machine.network())
                                                : 0);
  }
  if (left_out > 0)
    remark(std::to_string(left_out) + " of " + std::to_string(samples.size()) +
           " samples were left out: negative times or more than 1000 s, no messages or more than "
           "65536, more than 4 GiB, or of no ranks or more than messages");
  return result;
}

}  // namespace tutti::tune
