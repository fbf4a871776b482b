#include "bootstrap/unshared_descriptor.hpp"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <utility>

namespace tutti::bootstrap {

namespace {
// One list for the process, not one for each exchange: fork() copies everything at once.  The
// forking thread holds the lock across the fork, so both sides find the list whole.
std::mutex list_lock;
}  // namespace

UnsharedDescriptor* UnsharedDescriptor::first_ = nullptr;

UnsharedDescriptor::ForkLock::ForkLock() noexcept {
  // Registered before the lock is first taken: a fork in between would leave it locked in the
  // child.  The only possible failure is a lack of memory; children then share descriptors as they
  // would without this class.
  [[maybe_unused]] static const int error =
      ::pthread_atfork([] { list_lock.lock(); }, [] { list_lock.unlock(); }, close_all_in_child);
  list_lock.lock();
}

UnsharedDescriptor::ForkLock::~ForkLock() {
  list_lock.unlock();
}

/// Only async-signal-safe functions may be called here.
void UnsharedDescriptor::close_all_in_child() noexcept {
  for (UnsharedDescriptor* owner = first_; owner != nullptr; owner = owner->next_) {
    if (owner->number_ >= 0) ::close(owner->number_);
    owner->number_ = -1;
    owner->inherited_ = true;
  }
  list_lock.unlock();
}

UnsharedDescriptor::UnsharedDescriptor(int number) noexcept : number_(number) {
  if (number_ >= 0) link();
}

UnsharedDescriptor::UnsharedDescriptor(UnsharedDescriptor&& other) noexcept {
  const ForkLock lock;
  take(other);
}

UnsharedDescriptor& UnsharedDescriptor::operator=(UnsharedDescriptor&& other) noexcept {
  if (this == &other) return *this;
  const ForkLock lock;
  if (number_ >= 0) ::close(number_);
  unlink();
  take(other);
  return *this;
}

UnsharedDescriptor::~UnsharedDescriptor() {
  const ForkLock lock;  // first, because the neighbours in the list write slot_
  if (number_ >= 0) ::close(number_);
  unlink();
}

void UnsharedDescriptor::take(UnsharedDescriptor& other) noexcept {
  number_ = std::exchange(other.number_, -1);
  inherited_ = std::exchange(other.inherited_, false);
  if (other.slot_ == nullptr) return;
  other.unlink();
  link();
}

void UnsharedDescriptor::link() noexcept {
  next_ = first_;
  slot_ = &first_;
  if (next_ != nullptr) next_->slot_ = &next_;
  first_ = this;
}

void UnsharedDescriptor::unlink() noexcept {
  if (slot_ == nullptr) return;
  *slot_ = next_;
  if (next_ != nullptr) next_->slot_ = slot_;
  next_ = nullptr;
  slot_ = nullptr;
}

}  // namespace tutti::bootstrap
