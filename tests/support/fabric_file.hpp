// A network for a test: a file with its description, which the software device emulates in all
// processes that are started while the object lives.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace tutti::test {

class FabricFile {
 public:
  /// `json`: as verbs/soft/EMULATION.md says.
  explicit FabricFile(const std::string& json)
      : name_("fabric." + std::to_string(::getpid()) + ".json") {
    std::ofstream(name_) << json;
    ::setenv("TUTTI_SOFT_FABRIC", name_.c_str(), 1);
  }
  ~FabricFile() {
    ::unsetenv("TUTTI_SOFT_FABRIC");
    std::remove(name_.c_str());
  }
  FabricFile(const FabricFile&) = delete;
  FabricFile& operator=(const FabricFile&) = delete;

  const char* name() const { return name_.c_str(); }

 private:
  std::string name_;
};

}  // namespace tutti::test
