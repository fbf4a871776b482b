// The model of a network is refused in one sentence that names the file, or all of its times are
// finite and not negative.
#include <string>
#include <tutti/status.hpp>

#include "fuzz.hpp"
#include "scratch_file.hpp"
#include "verbs/soft/fabric_model.hpp"

namespace tutti::fuzz {

void judge(std::span<const std::uint8_t> input) {
  const ScratchFile file(text_of(input));
  try {
    const verbs::soft::FabricModel model = verbs::soft::read_fabric_model(file.path());
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{1} << 40}) {
      promise(model.wire_time(bytes) >= 0, "no time is negative");
      promise(model.port_time(bytes) >= model.gap, "a port is taken for the gap at least");
      promise(model.work_time(bytes) >= 0, "no time is negative");
      promise(model.inside.store_time(bytes) >= 0 && model.inside.read_time(bytes) >= 0 &&
                  model.inside.copy_time(bytes) >= 0,
              "no time is negative");
    }
    for (std::uint32_t from = 0; from < 3; ++from)
      for (std::uint32_t to = 0; to < 3; ++to)
        promise(model.latency_between(from, to) >= 0, "no time is negative");
  } catch (const Error& error) {
    const std::string what = error.what();
    promise(error.code() == ErrorCode::invalid_argument, "an invalid file is the user's", what);
    promise(what.starts_with("fabric \"" + file.path() + "\": "), "an error names the file", what);
    promise(what.size() < 2000, "an error is short", what);
    promise(what.find('\n') == std::string::npos, "an error is one line", what);
  }
}

std::vector<std::string> seeds() {
  return {"{}",
          R"({"latency_us": 1.3, "send_overhead_us": 0.12, "receive_overhead_us": 0.05,
 "gap_us": 0.05, "rank_gap_us": 0.08, "gigabytes_per_second": 12.1})",
          R"({"preset": "hdr", "inside": {"latency_us": 0.1, "send_overhead_us": 0.02,
 "receive_overhead_us": 0.02, "gigabytes_per_second": 10, "read_overhead_us": 0.5}})",
          R"({"preset": "edr", "latencies_us": [[0, 1, 2], [1, 0, 2.5], [2, 2.5e0, 0]]})",
          R"({"preset": "qdr", "faults": {"seed": 7, "delay_probability": 0.01, "delay_us": 50,
 "drop_probability": 1e-3, "not_ready_probability": 0.5,
 "slow": [{"place": 3, "factor": 2}], "link_down": [{"place": 1, "from_us": 10,
 "until_us": 500}]}})"};
}

}  // namespace tutti::fuzz
