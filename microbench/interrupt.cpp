#include "microbench/interrupt.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <new>

namespace tutti::bench {
namespace {

static_assert(std::atomic<RunStage>::is_always_lock_free);

// All texts are ready before a signal can come, because a handler must not make any.  They are
// never destroyed: a signal may come while exit() destroys static objects.
struct Words {
  std::array<std::string, 4> texts;  // by stage
  std::string journal;
  bool says_why = false;
};
std::atomic<RunStage>* shared = nullptr;  // in memory that the program shares with its ranks
const Words* words = nullptr;
pid_t program = 0;  // the process that forks the ranks

void print(const std::string& text) noexcept {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(STDERR_FILENO, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    done += static_cast<std::size_t>(count);
  }
}

/// Calls only what is async-signal-safe.  Only the program prints: a rank passes the signal to it,
/// unless it has gone (its id may be another process's by now), and ends.
void end(int signal) {
  if (::getpid() != program) {
    if (::getppid() == program) ::kill(program, signal);
    ::_exit(128 + signal);
  }
  const RunStage stage = shared->load();
  if (stage == RunStage::opened) ::unlink(words->journal.c_str());
  if (words->says_why) print(words->texts[static_cast<std::size_t>(stage)]);
  ::_exit(128 + signal);
}

static_assert(std::atomic<int>::is_always_lock_free);
std::atomic<int> noted = 0;  // several threads look at it

void note(int signal) {
  noted = signal;
}

/// A signal that is ignored stays ignored.
void handle_by(void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ::sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaddset(&action.sa_mask, signal);
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction before {};
    if (::sigaction(signal, nullptr, &before) == 0 && before.sa_handler != SIG_IGN)
      ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace

void end_with_words(const std::string& file, bool says) {
  void* const memory =
      ::mmap(nullptr, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;  // then a signal ends the run without words
  shared = new (memory) std::atomic<RunStage>(RunStage::before);
  const std::string journal = file + ".journal";
  program = ::getpid();
  // The line is cleared first, because a progress bar may stand there.
  const std::string begin = std::string(::isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "") +
                            "tutti-tune: ended by a signal; ";
  const std::string nothing = "nothing was found yet, and no file has changed\n";
  words = new Words{.texts = {begin + nothing, begin + nothing,
                              begin + "what was found is kept in " + journal +
                                  ": start it again with the same options, and it goes on there\n",
                              begin + "the file is written: " + file + "\n"},
                    .journal = journal,
                    .says_why = says};
  handle_by(end, 0);
}

void note_stage(RunStage stage) noexcept {
  if (shared != nullptr) shared->store(stage);
}

NotedSignals::NotedSignals() {
  handle_by(note, static_cast<int>(SA_RESETHAND | SA_RESTART));
}

NotedSignals::~NotedSignals() {
  handle_by(SIG_DFL, 0);
}

int NotedSignals::last() const noexcept {
  return noted;
}

}  // namespace tutti::bench
