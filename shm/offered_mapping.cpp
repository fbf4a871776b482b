#include "shm/offered_mapping.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>
#include <tutti/detail/check.hpp>
#include <tutti/status.hpp>
#include <unordered_map>

namespace tutti::shm {
namespace {

/// Mappings that this process has, its own among them, by nonce.  Used at set-up only.
struct KnownMappings {
  std::mutex mutex;
  pid_t process = ::getpid();
  std::unordered_map<std::uint64_t, std::weak_ptr<detail::Mapping>> by_nonce;
};
KnownMappings& known_mappings() {
  static KnownMappings mappings;
  return mappings;
}

/// Called with the mutex held.  A forked child may not have what its parent has mapped.
void forget_those_of_the_parent(KnownMappings& known) {
  if (known.process == ::getpid()) return;
  known.by_nonce.clear();
  known.process = ::getpid();
}

[[noreturn]] void refuse(const std::string& what, int error, const char* advice) {
  throw Error(ErrorCode::system, what + ": " + std::strerror(error) + advice, error);
}

std::uint64_t nonce_of(const detail::Mapping& mapping) noexcept {
  std::uint64_t nonce;
  std::memcpy(&nonce, mapping.data(), sizeof nonce);
  return nonce;
}

std::string path_of(const MappingCard& card) {
  return "/proc/" + std::to_string(card.process) + "/fd/" + std::to_string(card.descriptor);
}

detail::Mapping map_from(const MappingCard& card) {
  const std::string path = path_of(card);
  const detail::Descriptor file = open_offered(card);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) refuse("fstat of " + path, errno, "");
  // A file that is shorter, or gets shorter later, would end this process by SIGBUS.
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (!S_ISREG(status.st_mode) || static_cast<std::uint64_t>(status.st_size) != card.bytes ||
      seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    refuse(path + " is another file than the one offered", ESTALE, "");
  detail::Mapping mapping(
      ::mmap(nullptr, card.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0), card.bytes);
  if (!mapping) refuse("mapping " + path, errno, " (check ulimit -v)");
  // A forked child must not use it.
  if (::madvise(mapping.data(), mapping.size(), MADV_DONTFORK) != 0)
    refuse("madvise(MADV_DONTFORK) of " + path, errno, "");
  if (nonce_of(mapping) != card.nonce)
    refuse(path + " is other memory than the one offered", ESTALE, "");
  return mapping;
}

}  // namespace

detail::Descriptor open_offered(const MappingCard& card) {
  const std::string path = path_of(card);
  detail::Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file)
    refuse("opening the offered memory " + path, errno,
           " (it needs the same user, the same namespace of process ids, and a process that may be "
           "traced)");
  return file;
}

OfferedMapping::OfferedMapping(std::uint64_t nonce, std::shared_ptr<detail::Mapping> mapping,
                               int descriptor)
    : nonce_(nonce), mapping_(std::move(mapping)), descriptor_(descriptor) {
  detail::check(nonce != 0, "the nonce of offered memory is not 0");
  detail::check(mapping_->size() >= header_bytes, "offered memory has room for its nonce",
                mapping_->size(), header_bytes);
  std::memcpy(mapping_->data(), &nonce_, sizeof nonce_);
  KnownMappings& known = known_mappings();
  const std::lock_guard guard(known.mutex);
  forget_those_of_the_parent(known);
  known.by_nonce[nonce_] = mapping_;
}

OfferedMapping::~OfferedMapping() {
  KnownMappings& known = known_mappings();
  const std::lock_guard guard(known.mutex);
  forget_those_of_the_parent(known);
  known.by_nonce.erase(nonce_);
}

MappingCard OfferedMapping::card() const noexcept {
  return {.nonce = nonce_,
          .bytes = mapping_->size(),
          .address = reinterpret_cast<std::uint64_t>(mapping_->data()),
          .process = ::getpid(),
          .descriptor = descriptor_};
}

std::shared_ptr<detail::Mapping> map_offered(const MappingCard& card) {
  KnownMappings& known = known_mappings();
  const std::lock_guard guard(known.mutex);
  forget_those_of_the_parent(known);
  if (const auto found = known.by_nonce.find(card.nonce); found != known.by_nonce.end())
    if (std::shared_ptr<detail::Mapping> mapping = found->second.lock()) return mapping;
  std::erase_if(known.by_nonce, [](const auto& entry) { return entry.second.expired(); });
  auto mapping = std::make_shared<detail::Mapping>(map_from(card));
  known.by_nonce[card.nonce] = mapping;
  return mapping;
}

}  // namespace tutti::shm
