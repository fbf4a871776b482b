// A device that places the word of a chunk without release: ThreadSanitizer has to report that the
// chunk is read while it is written, or its silence about the shared ring would mean nothing.
#include "ring_threads.hpp"

int main() {
  return tutti::test::run_threads<std::memory_order_relaxed>({{2, 2}, 4000}, 50) == 0 ? 0 : 1;
}
