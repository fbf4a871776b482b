#include "microbench/verify_tuned.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <tutti/detail/hash.hpp>
#include <utility>

#include "microbench/noisy_times.hpp"
#include "microbench/tune_racers.hpp"

namespace tutti::bench {
namespace {

/// The nearest of an ascending list below a number and above it, as far as there are any.
template <class Numbers>
std::vector<std::uint64_t> nearest(const Numbers& numbers, std::uint64_t here) {
  std::vector<std::uint64_t> found;
  const auto above = std::upper_bound(numbers.begin(), numbers.end(), here);
  const auto not_below = std::lower_bound(numbers.begin(), numbers.end(), here);
  if (not_below != numbers.begin()) found.push_back(*std::prev(not_below));
  if (above != numbers.end()) found.push_back(*above);
  return found;
}

/// Not std::hash, so that a text means the same with any library.
std::uint64_t hash_of(std::string_view text) {
  detail::Hash hash;
  for (const char letter : text) hash.add(static_cast<unsigned char>(letter));
  return hash.value();
}

std::vector<Agreement> agreements_of(tune::Collective collective) {
  if (!tune::combines(collective)) return {Agreement::identical};
  return {Agreement::identical, Agreement::reproducible, Agreement::relaxed};
}

}  // namespace

tune::Knowledge without_file() {
  return tune::untuned(tune::machine_preset("fdr"));
}

tune::Finding found_for(const ChoiceCell& cell, const tune::Knowledge& known,
                        const plan::Network& truth, std::uint64_t seed) {
  const tune::CollectiveRequest request = cell.request();
  const tune::Topology topology = cell.topology();
  const Racers racers = racers_of(request, topology, known, without_file());
  std::vector<plan::Picoseconds> times;
  for (const tune::Choice& choice : racers.choices) times.push_back(time_of(choice, cell, truth));
  tune::RaceResult result;
  for (int tries = 0; tries <= noisy_tries; ++tries) {
    result = noisy_race(times, seed + static_cast<std::uint64_t>(tries) * 0x9e3779b97f4a7c15);
    // One that is alone is measured, and has nothing to be compared with.
    if (times.size() == 1) result.is_noisy = false;
    if (!result.is_noisy) break;
  }
  return finding_of(request, topology, racers.choices, result);
}

std::vector<ChoiceCell> tuned_nearby(const ChoiceCell& cell, std::uint32_t ranks_max) {
  constexpr std::array<std::uint64_t, 10> tuned_nodes = {2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
  const std::uint64_t bytes = cell.request().bytes();
  const std::vector<std::uint64_t> sizes = cell.collective == tune::Collective::barrier
                                               ? std::vector<std::uint64_t>{0}
                                               : nearest(tuned_bytes_by_default, bytes);
  std::vector<ChoiceCell> cells;
  for (const std::uint64_t nodes : nearest(tuned_nodes, cell.nodes)) {
    const std::uint64_t ranks = nodes * cell.ranks_per_node;
    if (ranks > ranks_max) continue;
    const std::uint64_t blocks = has_blocks(cell.collective) ? ranks : 1;
    for (const std::uint64_t size : sizes)
      for (const Agreement agreement : agreements_of(cell.collective)) {
        if (size > tuned_buffer_bytes_max / blocks) continue;
        ChoiceCell near_one = cell;
        near_one.nodes = static_cast<std::uint32_t>(nodes);
        near_one.bytes = size * blocks;
        near_one.agreement = agreement;
        cells.push_back(near_one);
      }
  }
  return cells;
}

tune::Knowledge after_race(const ChoiceCell& cell, const tune::Machine& known,
                           const plan::Network& truth, std::uint64_t seed) {
  tune::Tuning tuning;
  tuning.machine = known;
  tuning.findings = {found_for(cell, tune::untuned(known), truth, seed)};
  return tune::tuned(without_file().machine, std::move(tuning), tune::TuningBits::free);
}

tune::Finding TunedFiles::finding_of(const ChoiceCell& cell, const tune::Knowledge& model,
                                     const plan::Network& truth, std::uint64_t seed) {
  const std::string text = cell.text();
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = findings_.find(text); found != findings_.end()) return found->second;
  }
  tune::Finding finding = found_for(cell, model, truth, seed + hash_of(text));
  const std::lock_guard lock(mutex_);
  return findings_.try_emplace(text, std::move(finding)).first->second;
}

tune::Knowledge TunedFiles::nearby(const ChoiceCell& cell) {
  const tune::Machine& truth = tune::machine_preset(cell.preset);
  const std::uint64_t seed = seed_ + hash_of(cell.preset + " " + tune::name_of(cell.collective) +
                                             " " + std::to_string(cell.ranks_per_node));
  tune::Tuning tuning;
  tuning.machine = machine_off_by(truth, percent_off_, seed);
  const tune::Knowledge model = tune::untuned(tuning.machine);
  for (const ChoiceCell& near_one : tuned_nearby(cell, ranks_max_))
    tuning.findings.push_back(finding_of(near_one, model, truth.network(), seed));
  return tune::tuned(without_file().machine, std::move(tuning), tune::TuningBits::free);
}

}  // namespace tutti::bench
