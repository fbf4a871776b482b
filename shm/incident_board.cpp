#include "shm/incident_board.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <tutti/detail/check.hpp>
#include <tutti/detail/file_space.hpp>
#include <tutti/status.hpp>

namespace tutti::shm {
namespace {

[[noreturn]] void refuse(const char* what, int error) {
  throw Error(ErrorCode::system,
              std::string(what) + " for the incidents of a communicator: " + std::strerror(error),
              error);
}

}  // namespace

IncidentBoard::IncidentBoard(std::shared_ptr<detail::Mapping> mapping,
                             std::uint32_t rank_count) noexcept
    : mapping_(std::move(mapping)), rank_count_(rank_count) {
  detail::check(mapping_->size() >= bytes_for(rank_count), "a board has room for every rank",
                mapping_->size(), bytes_for(rank_count));
}

std::size_t IncidentBoard::bytes_for(std::uint32_t rank_count) noexcept {
  const auto page = static_cast<std::size_t>(::getpagesize());
  const std::size_t bytes = states_offset + rank_count * sizeof(std::uint32_t);
  return (bytes + page - 1) / page * page;
}

std::uint64_t& IncidentBoard::incident_word() const noexcept {
  return *reinterpret_cast<std::uint64_t*>(mapping_->data() + incident_offset);
}

std::uint32_t& IncidentBoard::state_word(Rank rank) const noexcept {
  detail::check(index_of(rank) < rank_count_, "the rank is one of the board's", index_of(rank),
                rank_count_);
  return reinterpret_cast<std::uint32_t*>(mapping_->data() + states_offset)[index_of(rank)];
}

Incident IncidentBoard::incident() const noexcept {
  const std::uint64_t word =
      std::atomic_ref(incident_word()).load(std::memory_order_acquire);  // with what came before it
  // Memory that others write: a kind that is not known is no incident.
  if (word >> 32 > static_cast<std::uint32_t>(Incident::Kind::silent)) return {};
  if (word >> 32 == 0) return {};
  return {.kind = static_cast<Incident::Kind>(word >> 32),
          .rank = Rank{static_cast<std::uint32_t>(word)}};
}

void IncidentBoard::announce(Incident incident) noexcept {
  const std::uint64_t word =
      std::uint64_t{static_cast<std::uint32_t>(incident.kind)} << 32 | index_of(incident.rank);
  std::uint64_t none = 0;
  std::atomic_ref(incident_word())
      .compare_exchange_strong(none, word, std::memory_order_acq_rel, std::memory_order_acquire);
}

IncidentBoard::OwnedText& IncidentBoard::owned_text() const noexcept {
  return *reinterpret_cast<OwnedText*>(mapping_->data() + text_offset);
}

bool IncidentBoard::set_text(Rank self, const Text& text) noexcept {
  OwnedText& owned = owned_text();
  std::uint32_t nobody = 0;
  if (!std::atomic_ref(owned.owner)
           .compare_exchange_strong(nobody, index_of(self) + 1, std::memory_order_relaxed))
    return false;
  owned.text = text;
  owned.text.back() = '\0';
  // Who sees this sees the text.
  std::atomic_ref(owned.is_whole).store(1, std::memory_order_release);
  return true;
}

IncidentBoard::Text IncidentBoard::text_of(Rank rank) const noexcept {
  OwnedText& owned = owned_text();
  Text text{};
  if (std::atomic_ref(owned.is_whole).load(std::memory_order_acquire) != 1 ||
      std::atomic_ref(owned.owner).load(std::memory_order_relaxed) != index_of(rank) + 1)
    return text;
  text = owned.text;
  text.back() = '\0';
  return text;
}

IncidentBoard::State IncidentBoard::state_of(Rank rank) const noexcept {
  return static_cast<State>(std::atomic_ref(state_word(rank)).load(std::memory_order_acquire));
}

void IncidentBoard::set_state(Rank self, State state) noexcept {
  std::atomic_ref(state_word(self))
      .store(static_cast<std::uint32_t>(state), std::memory_order_release);
}

OfferedBoard::Memory::Memory(std::size_t bytes)
    : file(::memfd_create("tutti-incidents", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (!file) refuse("memfd_create", errno);
  if (detail::exceeds_file_limit(bytes)) refuse("RLIMIT_FSIZE (ulimit -f) is too low", EFBIG);
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) refuse("ftruncate", errno);
  // Pages exist before they are used and can never be cut off: no SIGBUS, on no rank.
  if (const int error = detail::allocate_file_space(file.get(), 0, bytes); error != 0)
    refuse("no memory", error);
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    refuse("sealing the memory", errno);
  mapping = std::make_shared<detail::Mapping>(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0), bytes);
  if (!*mapping) refuse("mapping the memory", errno);
  if (::madvise(mapping->data(), bytes, MADV_DONTFORK) != 0)
    refuse("madvise(MADV_DONTFORK) of the memory", errno);
}

OfferedBoard::OfferedBoard(std::uint64_t nonce, std::uint32_t rank_count)
    : memory_(IncidentBoard::bytes_for(rank_count)),
      offered_(nonce, memory_.mapping, memory_.file.get()) {}

}  // namespace tutti::shm
