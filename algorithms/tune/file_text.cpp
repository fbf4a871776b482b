#include "tune/file_text.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <tutti/detail/descriptor.hpp>
#include <tutti/status.hpp>

#include "tune/json_text.hpp"

namespace tutti::tune {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& why, int error = 0) {
  throw Error(ErrorCode::invalid_argument,
              name + ": " + why + (error != 0 ? std::string(": ") + std::strerror(error) : ""),
              error);
}

}  // namespace

std::string text_of_file(int descriptor, const std::string& name, std::size_t bytes_max) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) refuse(name, "fstat", errno);
  if (!S_ISREG(status.st_mode)) refuse(name, "is no regular file");
  std::string text;
  char block[64 << 10];
  for (;;) {
    const ssize_t count = ::read(descriptor, block, sizeof block);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(name, "cannot be read", errno);
    if (count == 0) return text;
    text.append(block, static_cast<std::size_t>(count));
    // One that grows while it is read has an end, too.
    if (text.size() > bytes_max)
      refuse(name, "is longer than the " + std::to_string(bytes_max) + " bytes that it may have");
  }
}

std::optional<std::string> text_of_file(const std::string& file) {
  const detail::Descriptor opened(
      ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!opened && errno == ENOENT) return std::nullopt;
  if (!opened) refuse(file, "cannot be opened", errno);
  return text_of_file(opened.get(), file, json_bytes_max);
}

}  // namespace tutti::tune
