// A tuning file as one page with pictures, which needs nothing else: no script, no font, no other
// file, no network.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tune/choose.hpp"
#include "tune/fit.hpp"
#include "tune/tuning.hpp"

namespace tutti::bench {

/// What is chosen for a request with what the file knows.
using Chooser = std::function<tune::Choice(const tune::CollectiveRequest&, const tune::Topology&)>;

/// By the prices of the file's machine alone; of FDR InfiniBand where the file has none.
Chooser by_price(const tune::Tuning& tuning);

/// What the file does not keep of a fit.
struct FitSamples {
  std::vector<tune::Sample> samples = {};
  std::vector<plan::Picoseconds> residuals = {};  // in their order
};

/// The page: latency over bytes of each schedule that was measured, messages per round over the
/// number of nodes, which schedule is chosen where, model against measurement, and residuals: of
/// the fit where there is one, else of the findings.
std::string report_page(const tune::Tuning& tuning, const std::string& name, const Chooser& choose,
                        const FitSamples& fit = {});

}  // namespace tutti::bench
