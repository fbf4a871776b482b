// A file of this process in memory, for readers that take a path.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <tutti/detail/descriptor.hpp>

#include "fuzz.hpp"

namespace tutti::fuzz {

class ScratchFile {
 public:
  explicit ScratchFile(std::string_view text) : file_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    promise(::write(file_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()),
            "there is memory for a file");
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_.get()); }

 private:
  detail::Descriptor file_;
};

}  // namespace tutti::fuzz
