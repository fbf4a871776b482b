#include "runtime/file_change.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <tutti/status.hpp>
#include <utility>

namespace tutti::runtime {
namespace {

[[noreturn]] void refuse_file(const std::string& name, int error, const char* advice) {
  throw Error(ErrorCode::invalid_argument, name + ": " + std::strerror(error) + "; " + advice,
              error);
}

[[noreturn]] void fail(const std::string& name) {
  const int error = errno;
  throw Error(ErrorCode::system, name + ": " + std::strerror(error), error);
}

std::string folder_of(const std::string& file) {
  const std::size_t slash = file.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : file.substr(0, slash);
}

/// The file itself, where `file` is a symbolic link to it.
std::string where_links_lead(const std::string& file) {
  char* const path = ::realpath(file.c_str(), nullptr);
  if (path == nullptr) return file;  // there is none yet
  std::string result = path;
  std::free(path);
  return result;
}

/// Makes a file beside `target` and puts its name into `name`.  The kernel applies the mask of the
/// process: to read it, one would have to change it, also for other threads that make files.
detail::Descriptor make_beside(const std::string& target, mode_t mode, std::string& name) {
  constexpr int tries = 1000;  // others, and what they have left behind, may have the name
  for (int i = 0; i < tries; ++i) {
    name = target + "." + std::to_string(::getpid()) + "." + std::to_string(i);
    detail::Descriptor made(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (made || errno != EEXIST) return made;
  }
  return {};
}

}  // namespace

void write_all(int descriptor, const std::string& text, const std::string& name) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(descriptor, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(name);
    done += static_cast<std::size_t>(count);
  }
}

void sync_file(int descriptor, const std::string& name) {
  // Some file systems have nothing to synchronise, and say so.
  if (::fsync(descriptor) != 0 && errno != EINVAL && errno != EROFS) fail(name);
}

void sync_folder_of(const std::string& file) {
  const detail::Descriptor folder(
      ::open(folder_of(file).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder) sync_file(folder.get(), folder_of(file));
}

void make_folder_of(const std::string& file, const char* advice) {
  for (std::size_t slash = 1; (slash = file.find('/', slash)) != std::string::npos; ++slash) {
    const std::string folder = file.substr(0, slash);
    if (::mkdir(folder.c_str(), 0777) == 0) continue;
    const int error = errno;
    struct stat status {};
    if (::stat(folder.c_str(), &status) != 0) refuse_file(folder, error, advice);
  }
}

void replace_file(const std::string& file, const std::string& text, const char* advice) {
  struct stat status {};
  if (::stat(file.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    throw Error(ErrorCode::invalid_argument, file + ": is no ordinary file; " + advice);
  const std::string target = where_links_lead(file);
  const bool is_there = ::stat(target.c_str(), &status) == 0;
  std::string other;
  // Names the file that the user knows.
  const auto require = [&](bool holds) {
    if (!holds) refuse_file(file, errno, advice);
  };
  const detail::Descriptor descriptor = make_beside(target, is_there ? 0600 : 0666, other);
  require(bool(descriptor));
  try {
    if (is_there) require(::fchmod(descriptor.get(), status.st_mode & 07777) == 0);
    write_all(descriptor.get(), text, file);
    sync_file(descriptor.get(), file);
    require(std::rename(other.c_str(), target.c_str()) == 0);
  } catch (const Error& error) {
    ::unlink(other.c_str());
    const std::string why = error.what();
    if (why.ends_with(advice)) throw;
    throw Error(error.code(), why + "; " + advice, error.system_errno());
  }
  sync_folder_of(target);
}

/// A lock on a file that was removed in the meantime excludes nobody, so the name is looked up
/// again after locking.
LockedJournal lock_journal(const std::string& name, std::chrono::milliseconds patience,
                           const char* advice, const char* advice_if_locked) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    LockedJournal journal{
        .descriptor = detail::Descriptor(
            ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NONBLOCK, 0666))};
    int error = journal.descriptor ? 0 : errno;
    journal.is_made = error == 0;
    const bool was_there = error == EEXIST;
    if (was_there) {
      journal.descriptor =
          detail::Descriptor(::open(name.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
      error = journal.descriptor ? 0 : errno;
    }
    const bool was_removed = was_there && error == ENOENT;
    if (error != 0 && !was_removed) refuse_file(name, error, advice);
    if (was_removed) {
      // In between; it is made in the next turn.
    } else if (::flock(journal.descriptor.get(), LOCK_EX | LOCK_NB) == 0) {
      struct stat mine, there;
      if (::fstat(journal.descriptor.get(), &mine) == 0 && ::stat(name.c_str(), &there) == 0 &&
          mine.st_ino == there.st_ino && mine.st_dev == there.st_dev)
        return journal;
    } else if (errno != EWOULDBLOCK && errno != EINTR) {
      refuse_file(name, errno, "give a file on a file system with locks (flock)");
    }
    if (std::chrono::steady_clock::now() > deadline)
      throw Error(ErrorCode::invalid_argument,
                  name + ": another process has locked it; " + advice_if_locked);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace tutti::runtime
