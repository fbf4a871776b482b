#include "tune/knowledge.hpp"

#include <utility>

namespace tutti::tune {

Knowledge untuned(const Machine& machine) {
  Knowledge knowledge;
  knowledge.machine = knowledge.untuned = machine;
  return knowledge;
}

Knowledge tuned(const Machine& machine, Tuning tuning, TuningBits bits) {
  Knowledge knowledge = untuned(machine);
  // A file may hold rules alone.
  if (!tuning.machine.name.empty()) knowledge.machine = std::move(tuning.machine);
  knowledge.rules = std::move(tuning.rules);
  knowledge.corrections = Corrections(tuning.findings);
  knowledge.findings = std::move(tuning.findings);
  knowledge.bits = bits;
  return knowledge;
}

}  // namespace tutti::tune
