// Hides from ThreadSanitizer what it cannot judge.
#pragma once

#include "verbs/soft/peer.hpp"

#if defined(__SANITIZE_THREAD__)
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);  // ignores writes, too
void AnnotateIgnoreReadsEnd(const char* file, int line);
}
#endif

namespace tutti::verbs::soft {

/// While it lives, this thread's accesses are hidden from the race detector if the peer is another
/// process.  It is used for data that are sent there: the program may learn from the peer, by a
/// message of its own or by shared memory, that the helper thread has read them; the detector does
/// not follow that, and would take the program's next write there for a race.  So it does not find
/// data that are overwritten too early, unless both queue pairs are in one process.
class PastRaceDetector {
 public:
#if defined(__SANITIZE_THREAD__)
  explicit PastRaceDetector(const Peer& peer) noexcept : is_past_(!peer.is_self()) {
    if (is_past_) AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  }
  ~PastRaceDetector() {
    if (is_past_) AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }

 private:
  bool is_past_;

 public:
#else
  explicit PastRaceDetector(const Peer&) noexcept {}
#endif
  PastRaceDetector(const PastRaceDetector&) = delete;
  PastRaceDetector& operator=(const PastRaceDetector&) = delete;
};

}  // namespace tutti::verbs::soft
