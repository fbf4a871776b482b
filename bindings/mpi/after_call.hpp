// A function is called when MPI has done a call that was left to it: report and verify ask for it,
// once for each call.
#pragma once

namespace tutti::interposer {

/// nullptr: nothing.  Only one thread at a time calls MPI where it is something else.
using AfterCall = void (*)(int result) noexcept;
extern constinit AfterCall after_call;

}  // namespace tutti::interposer
