#include "bootstrap/secret.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "bootstrap/socket.hpp"
#include "bootstrap/wire.hpp"
#include "tutti/detail/clock.hpp"
#include "tutti/detail/descriptor.hpp"
#include "tutti/status.hpp"

namespace tutti::bootstrap {

namespace {

[[noreturn]] void refuse(const std::string& origin, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, origin + ": " + why);
}

/// A carriage return and a newline may follow the secret, and one byte more shows that it is too
/// long.
constexpr std::size_t read_bytes_max = wire::secret_bytes_max + 3;

std::string read_secret(int descriptor, bool from_begin, const std::string& origin,
                        Deadline deadline) {
  std::string text;
  while (text.size() < read_bytes_max) {
    pollfd waiting{descriptor, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, poll_milliseconds(deadline.remaining(detail::now())));
    if (ready <= 0 && deadline.passed(detail::now()))
      refuse(origin,
             "its end has not come in time; close the other end when the secret is written");
    if (ready <= 0) continue;
    std::array<char, read_bytes_max> piece{};
    const std::size_t room = read_bytes_max - text.size();
    const ssize_t bytes =
        from_begin ? ::pread(descriptor, piece.data(), room, static_cast<off_t>(text.size()))
                   : ::read(descriptor, piece.data(), room);
    if (bytes < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (bytes < 0) refuse(origin, std::string("cannot be read: ") + std::strerror(errno));
    if (bytes == 0) break;
    text.append(piece.data(), static_cast<std::size_t>(bytes));
  }
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  if (text.empty())
    refuse(origin, "has no secret; expected 1 to 256 bytes, the same on every rank");
  if (text.size() > wire::secret_bytes_max)
    refuse(origin, "has more than " + std::to_string(wire::secret_bytes_max) +
                       " bytes; expected a secret of 1 to " +
                       std::to_string(wire::secret_bytes_max));
  return text;
}

}  // namespace

std::string secret_in_file(const std::string& path, const std::string& origin, Deadline deadline) {
  // Opening must not block on something that is no file, such as a pipe without a writer.
  const detail::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) refuse(origin, std::string("cannot be opened: ") + std::strerror(errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0)
    refuse(origin, std::string("cannot be looked at: ") + std::strerror(errno));
  if (!S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode))
    refuse(origin, "is no file; expected one that has the secret");
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    std::array<char, 8> mode{};
    (void)std::snprintf(mode.data(), mode.size(), "%03o", status.st_mode & 0777u);
    refuse(origin, "others than its owner may read or change it (mode " + std::string(mode.data()) +
                       "), so it is no secret; chmod 600 it, and take a new secret if it has been "
                       "readable");
  }
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    refuse(origin, "belongs to user " + std::to_string(status.st_uid) +
                       ", who knows it; expected a file of this user (" +
                       std::to_string(::geteuid()) + ") or of root");
  return read_secret(file.get(), S_ISREG(status.st_mode), origin, deadline);
}

std::string secret_from_descriptor(int descriptor, const std::string& origin, Deadline deadline) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0)
    refuse(origin, std::string("expected an open descriptor: ") + std::strerror(errno));
  // Children get no copy.
  const detail::Descriptor owned(descriptor > STDERR_FILENO ? descriptor : -1);
  return read_secret(descriptor, S_ISREG(status.st_mode), origin, deadline);
}

}  // namespace tutti::bootstrap
