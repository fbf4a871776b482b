// perftest's tools beside the same ranks: rank 1's part serves, rank 0's asks.
#pragma once

#include <optional>
#include <string>
#include <tutti/exchange.hpp>
#include <vector>

#include "verbs/device.hpp"

namespace tutti::bench {

/// One of perftest's tools, with what it is asked for.
struct PerftestCommand {
  std::string tool;                    // "ib_write_bw"
  std::vector<std::string> arguments;  // without device, port and peer
  std::size_t column = 0;              // of its last line of numbers
  double scale = 1;                    // from its unit to the row's
};

class Perftest {
 public:
  /// Collective.  `client` and `server` are ranks; `is_one_machine`: both are of one.
  Perftest(Exchange& exchange, Rank client, Rank server, bool is_one_machine,
           const verbs::Port& port);

  /// Why it cannot be used, as a sentence; empty: it can.  The same on all ranks.
  const std::string& obstacle() const noexcept { return obstacle_; }

  /// Collective.  Runs both parts, each on the CPUs of its rank, while the ranks wait.  The figure,
  /// on all ranks.  Throws RunFailed, with what it has printed, if it has failed three times:
  /// it measures the CPU's clock, and gives up where other programs delay that.
  double run(const PerftestCommand& command);

 private:
  std::optional<double> try_once(const PerftestCommand& command, std::string& said);

  Exchange& exchange_;
  bool is_client_, is_server_;
  Rank server_;
  bool is_one_machine_;
  std::string device_;
  std::vector<std::string> port_arguments_;
  std::string preload_;  // of the software device; empty: none
  std::string obstacle_;
};

/// The numbers of the last line that has nothing but numbers; what the tools print as a result.
std::vector<double> last_line_of_numbers(const std::string& text);

}  // namespace tutti::bench
