// Tells a forked child from the process that made a context, without a system call: a word on a
// page that the kernel hands to children filled with zeros (MADV_WIPEONFORK).  The owner writes it
// once; everybody else only reads it.  A process id would not do: asking for it is a system call,
// and a child in a namespace of its own may have the number of its parent.
//
// A child that a signal handler forks inside wait(), and that returns there, may still crash,
// because wait() looks at the word only now and then.
//
//        parent                              child
//   mark [ 1 0 0 ... ]      fork()      mark [ 0 0 0 ... ]
//
// What a child inherits still belongs to its parent: the device's objects, the memory that peers
// write, the sequence numbers.  The child neither uses nor destroys it, because destroying would
// take the parent's queue pairs down; it keeps the objects, which are a copy, until it ends.
#pragma once

#include <cstdint>
#include <memory>
#include <tutti/detail/descriptor.hpp>

namespace tutti::runtime {

class ForkMark {
 public:
  /// Throws Error{system}.
  ForkMark();

  /// Whether this process is a forked child of the one that made it, or a child of such a child.
  bool is_inherited() const noexcept { return word() == 0; }

  /// Not 0 in the process that made it, 0 in a child.  Written once, and by nobody while it is
  /// read.
  const std::uint32_t& word() const noexcept { return *word_; }

 private:
  detail::Mapping page_;
  const std::uint32_t* word_;
};

/// What a forked child is told, in errors and in failures.
constexpr const char* text_for_forked_child =
    "this is a forked child of the process that made the context; the child may only destroy what "
    "it has inherited, and has to make a context and an exchange of its own";

/// Never destroys it: a forked child has inherited it.  Leak checkers still find it.
void keep_inherited(const void* object) noexcept;

/// Destroys the object, unless this process has inherited it.
template <class Implementation>
void destroy_own(std::unique_ptr<Implementation>& object, const ForkMark& mark) noexcept {
  if (mark.is_inherited()) keep_inherited(object.release());
  object.reset();
}

}  // namespace tutti::runtime
