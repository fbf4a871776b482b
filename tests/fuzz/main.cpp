// libFuzzer's side of a target.  TARGET --seeds FOLDER writes the valid inputs there, and ends; all
// other arguments are libFuzzer's.
#include <filesystem>
#include <fstream>

#include "fuzz.hpp"

extern "C" int LLVMFuzzerInitialize(int* count, char*** words);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes);

extern "C" int LLVMFuzzerInitialize(int* count, char*** words) {
  if (*count != 3 || std::string_view((*words)[1]) != "--seeds") return 0;
  const std::filesystem::path folder = (*words)[2];
  std::filesystem::create_directories(folder);
  int number = 0;
  for (const std::string& seed : tutti::fuzz::seeds())
    std::ofstream(folder / std::to_string(number++), std::ios::binary) << seed;
  std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  tutti::fuzz::judge({data, bytes});
  return 0;
}
