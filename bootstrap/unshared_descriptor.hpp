// Owns a file descriptor that forked children do not get.  A connection ends for its peer when the
// last copy of the descriptor is closed, so a child that a rank has forked would keep it open and
// hide the rank's death.  All owners are in one list, and the child of a fork() closes their
// descriptors before it does anything else.  This does not cover clone() and vfork() that bypass
// the C library, nor exec, for which there is SOCK_CLOEXEC.
#pragma once

namespace tutti::bootstrap {

class UnsharedDescriptor {
 public:
  UnsharedDescriptor() = default;
  UnsharedDescriptor(UnsharedDescriptor&& other) noexcept;
  UnsharedDescriptor& operator=(UnsharedDescriptor&& other) noexcept;
  ~UnsharedDescriptor();

  /// Owns the descriptor that `open` returns, or nothing if that is negative; keeps errno.  Other
  /// threads cannot fork meanwhile, so `open` must not block, nor touch another owner.
  template <class Open>
  static UnsharedDescriptor made_by(Open open) noexcept {
    const ForkLock lock;
    return UnsharedDescriptor(open());
  }

  int get() const noexcept { return number_; }
  explicit operator bool() const noexcept { return number_ >= 0; }
  /// Whether this process is a fork of the one that opened it; it is empty then.
  bool inherited() const noexcept { return inherited_; }

 private:
  /// While it exists the list belongs to this thread, and no thread forks.
  struct ForkLock {
    ForkLock() noexcept;
    ForkLock(const ForkLock&) = delete;
    ForkLock& operator=(const ForkLock&) = delete;
    ~ForkLock();
  };

  explicit UnsharedDescriptor(int number) noexcept;
  void take(UnsharedDescriptor& other) noexcept;
  void link() noexcept;
  void unlink() noexcept;
  static void close_all_in_child() noexcept;

  static UnsharedDescriptor* first_;

  int number_ = -1;
  bool inherited_ = false;
  UnsharedDescriptor* next_ = nullptr;
  UnsharedDescriptor** slot_ = nullptr;  // where the list points to this; null: not in the list
};

}  // namespace tutti::bootstrap
