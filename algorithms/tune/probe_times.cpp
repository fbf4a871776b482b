#include "tune/probe_times.hpp"

#include <algorithm>
#include <cstddef>

namespace tutti::tune {
namespace {

constexpr plan::Picoseconds time_max = 1'000'000'000'000'000;  // as in files

bool is_same(const ProbeTime& one, const Sample& sample) {
  return one.probe == sample.probe && one.bytes == sample.bytes &&
         one.messages == sample.messages && one.ranks == sample.ranks;
}

bool has_place(const Sample& sample) {
  return sample.time >= 0 && sample.time <= time_max && sample.bytes <= probe_bytes_max &&
         sample.messages > 0 && sample.messages <= probe_messages_max && sample.ranks > 0 &&
         sample.ranks <= probe_messages_max;
}

}  // namespace

std::vector<ProbeTime> probe_times_of(const std::vector<Sample>& samples,
                                      const std::vector<plan::Picoseconds>& residuals) {
  std::vector<ProbeTime> times;
  for (std::size_t i = 0; i < std::min(samples.size(), residuals.size()); ++i) {
    const Sample& sample = samples[i];
    if (!has_place(sample)) continue;
    auto one = std::find_if(times.begin(), times.end(),
                            [&](const ProbeTime& known) { return is_same(known, sample); });
    if (one != times.end() && one->measured <= sample.time) continue;
    if (one == times.end()) {
      if (times.size() == probe_times_max) continue;
      one = times.insert(one, {.probe = sample.probe,
                               .bytes = sample.bytes,
                               .messages = sample.messages,
                               .ranks = sample.ranks});
    }
    one->measured = sample.time;
    one->predicted = std::clamp<plan::Picoseconds>(sample.time - residuals[i], 0, time_max);
  }
  return times;
}

}  // namespace tutti::tune
