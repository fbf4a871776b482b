// Prints texts of tuning files, a line of JSON each, {"valid": true, "text": "..."}: what the
// library writes, and what it refuses that a schema can see.  tuning_schema.py judges them.
#include "tuning_texts.hpp"

#include <iostream>
#include <nlohmann/json.hpp>

int main() {
  using namespace tutti;
  const auto print = [](bool is_valid, const std::string& text) {
    std::cout << nlohmann::json{{"valid", is_valid}, {"text", text}}.dump() << "\n";
  };
  print(true, test::tuning_example);
  print(true, tune::text_of(tune::Tuning{}));
  for (std::uint64_t seed = 1; seed <= 200; ++seed)
    print(true, tune::text_of(test::RandomTuning(seed).tuning()));
  for (const test::RefusedEdit& edit : test::refused_edits)
    if (edit.schema_sees) print(false, edited(edit));
}
